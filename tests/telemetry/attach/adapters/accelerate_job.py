"""A loop with Accelerate on a small network. With `tracker`, it uses the adapter of rankscope.

Prints the bits of each loss.
"""

import sys
from typing import Any

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.telemetry.attach.adapters.slowed import slow_down

STEPS = 12
ACCUMULATED = 2


def main(out: str, *options: str) -> None:
    tracker: Any = None
    if "tracker" in options:
        from rankscope.adapters import AccelerateTracker  # noqa: PLC0415

        tracker = AccelerateTracker()
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=ACCUMULATED, log_with=tracker)
    accelerator.init_trackers("a project", config={"learning_rate": 1e-3})
    torch.manual_seed(0)
    model: Any = nn.Sequential(nn.Linear(64, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 1))
    slow_down(model)
    rows = torch.randn(STEPS * ACCUMULATED * 2 * 32, 64)
    model, optimizer, loader = accelerator.prepare(
        model, torch.optim.AdamW(model.parameters(), lr=1e-3), DataLoader(TensorDataset(rows), batch_size=32)
    )
    for (batch,) in loader:
        with accelerator.accumulate(model):
            loss = (model(batch) - batch.sum(dim=1, keepdim=True)).square().mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        print("loss", float(loss.detach()).hex(), flush=True)
        if accelerator.sync_gradients:
            accelerator.log({"train_loss": loss.item(), "lr": 1e-3}, step=1000)
    accelerator.save_state(out)
    accelerator.end_training()


if __name__ == "__main__":
    main(*sys.argv[1:])
