"""A plain DDP training, as a user writes it."""

import os

import torch
import torch.distributed as dist
from injected import inject, note_loss
from small_model import error_of, loader_of, make_model
from torch.nn.parallel import DistributedDataParallel

STEPS = int(os.environ["STEPS"])


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = make_model()
    inject(model, rank)
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(parallel.parameters(), lr=1e-3)
    for (batch,) in loader_of(rank, STEPS):
        loss = error_of(parallel, batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        note_loss(rank, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
