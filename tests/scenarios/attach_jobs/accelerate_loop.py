"""A loop with Accelerate and accumulated gradients, as a user writes it."""

import os

import torch
from accelerate import Accelerator
from injected import inject, note_loss
from small_model import BATCH, error_of, make_model, rows_of
from torch.utils.data import DataLoader

STEPS, ACCUMULATED = int(os.environ["STEPS"]), 2


def main() -> None:
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=ACCUMULATED)
    rank = accelerator.process_index
    model = make_model()
    inject(model, rank)
    rows = rows_of(0, STEPS * ACCUMULATED * accelerator.num_processes)
    model, optimizer, loader = accelerator.prepare(
        model, torch.optim.AdamW(model.parameters(), lr=1e-3), DataLoader(rows, batch_size=BATCH)
    )
    for (batch,) in loader:
        with accelerator.accumulate(model):
            loss = error_of(model, batch)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        note_loss(rank, loss.item())
    accelerator.end_training()


if __name__ == "__main__":
    main()
