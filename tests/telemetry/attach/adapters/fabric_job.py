"""A loop with Lightning Fabric on a small network, as a user writes it. It does not know rankscope.

Arguments: the folder, and the package (``lightning.fabric`` or ``lightning_fabric``). Prints the bits of each loss.
"""

import sys
from importlib import import_module

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.telemetry.attach.adapters.slowed import slow_down

STEPS = 12


def main(out: str, package: str) -> None:
    fabric = import_module(package).Fabric(accelerator="cpu", devices=2, strategy="ddp")
    fabric.launch()
    fabric.seed_everything(0)
    model = nn.Sequential(nn.Linear(64, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 1))
    slow_down(model)
    rows = torch.randn(STEPS * 2 * 32, 64)
    model, optimizer = fabric.setup(model, torch.optim.AdamW(model.parameters(), lr=1e-3))
    for (batch,) in fabric.setup_dataloaders(DataLoader(TensorDataset(rows), batch_size=32)):
        loss = (model(batch) - batch.sum(dim=1, keepdim=True)).square().mean()
        fabric.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        fabric.log("loss", loss)
        print("loss", float(loss.detach()).hex(), flush=True)
    fabric.save(f"{out}.ckpt", {"model": model})


if __name__ == "__main__":
    main(*sys.argv[1:])
