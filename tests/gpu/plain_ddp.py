"""A plain DDP training on all GPUs, as a user writes it. It does not name rankscope. Rank 0 prints its losses."""

import ctypes
import json
import os
import signal

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS, BATCH, INPUTS, WIDTH = 30, 2048, 1024, 4096
PR_SET_PDEATHSIG = 1


def main() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # a killed torchrun does not end its ranks
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    torch.manual_seed(0)
    layers = (nn.Linear(INPUTS, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, 1))
    parallel = DistributedDataParallel(nn.Sequential(*layers).cuda())
    optimizer = torch.optim.AdamW(parallel.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(rank)
    losses = []
    for _ in range(STEPS):
        batch = torch.randn(BATCH, INPUTS, generator=generator).cuda()
        loss = (parallel(batch) - batch.sum(1, keepdim=True)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    if rank == 0:
        print(json.dumps([loss.item() for loss in losses]))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
