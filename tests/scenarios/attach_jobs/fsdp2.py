"""A training with FSDP2 (``fully_shard``), as a user writes it."""

import os

import torch
import torch.distributed as dist
from injected import inject, note_loss
from small_model import error_of, loader_of, make_model
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

STEPS = int(os.environ["STEPS"])


def main() -> None:
    mesh = init_device_mesh("cpu", (int(os.environ["WORLD_SIZE"]),), mesh_dim_names=("dp_shard",))
    rank = dist.get_rank()
    model = make_model()
    for layer in model.children():
        if isinstance(layer, nn.Linear) and layer.out_features > 1:
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    inject(model, rank)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for (batch,) in loader_of(rank, STEPS):
        loss = error_of(model, batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        note_loss(rank, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
