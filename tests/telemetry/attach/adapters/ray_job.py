"""A training of two gloo workers by Ray Train, as a user writes it. It does not know rankscope.

Arguments: name of the run, folder of its results, number of failures of rank 1. The loop fails at step 6, and continues
from its newest checkpoint. Prints the bits of each loss.
"""

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import ray
import ray.train
import torch
from ray.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_model
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

STEPS = 16
BATCH = 32
FAILS_AT = 6


class Net(nn.Module):
    def __init__(self, *, is_slow: bool) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 1))
        self.is_slow = is_slow

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        if self.is_slow:
            matrix = torch.ones(192, 192)
            for _ in range(20):
                matrix @ matrix
        return self.layers(rows)


def train(config: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    rank = ray.train.get_context().get_world_rank()
    torch.manual_seed(0)
    model = prepare_model(Net(is_slow=str(rank) == config["slow_rank"]))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    first, losses = 0, []
    if (checkpoint := ray.train.get_checkpoint()) is not None:
        with checkpoint.as_directory() as folder:
            state = torch.load(Path(folder) / "state.pt")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first, losses = state["steps"], state["losses"]
    rows = torch.randn(STEPS * BATCH, 64, generator=torch.Generator().manual_seed(rank))
    for step, (batch,) in enumerate(DataLoader(TensorDataset(rows[first * BATCH :]), batch_size=BATCH), start=first):
        if config["fails"] and checkpoint is None and rank == 1 and step == FAILS_AT:
            raise RuntimeError("made to fail")
        loss = (model(batch) - batch.sum(dim=1, keepdim=True)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item().hex())
        if step % 4 == 3:
            report(rank, {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "steps": step + 1}, losses)


def report(rank: int, state: dict[str, Any], losses: list[str]) -> None:
    """Rank 0 saves a checkpoint."""
    with tempfile.TemporaryDirectory() as folder:
        if rank == 0:
            torch.save({**state, "losses": losses}, Path(folder) / "state.pt")
        checkpoint = Checkpoint.from_directory(folder) if rank == 0 else None
        ray.train.report({"losses": " ".join(losses), "loss": float.fromhex(losses[-1])}, checkpoint=checkpoint)


def main(name: str, folder: str, num_failures: str) -> None:
    ray.init(num_cpus=4, include_dashboard=False)
    trainer = TorchTrainer(
        train,
        train_loop_config={"slow_rank": os.environ.get("SLOW_RANK"), "fails": int(num_failures)},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(name=name, storage_path=folder, failure_config=FailureConfig(max_failures=1)),
    )
    print("loss", trainer.fit().metrics["losses"], flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
