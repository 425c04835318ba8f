"""A small training of gloo ranks that runs until the file ``stop`` exists, and writes the bits of each loss.

python -m tests.integration.profiled_job FOLDER NUM_RANKS [NUM_STEPS]
"""

import os
import signal
import sys
import threading
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import telemetry
from telemetry.stages import Stage
from telemetry.topology import Topology

RUN = "profiled"
PAUSE_S = 0.1


def main(folder: Path, num_ranks: int, num_steps: int | None) -> None:
    torch.multiprocessing.start_processes(
        _run_rank, args=(folder, num_ranks, num_steps), nprocs=num_ranks, start_method="fork"
    )


def _run_rank(rank: int, folder: Path, num_ranks: int, num_steps: int | None) -> None:
    torch.multiprocessing._prctl_pr_set_pdeathsig(signal.SIGKILL)
    torch.set_num_threads(1)
    telemetry.start(RUN, topology=Topology(dp=num_ranks), rank=rank, attempt=0, spool=folder / "spool", agent=False)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=num_ranks)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with (folder / f"losses-{rank}").open("w", buffering=1) as losses:
        step, stops = 0, torch.zeros(1)
        while not stops.item():
            with telemetry.step(step):
                losses.write(f"{_train(model, optimizer, rank, step)}\n")
            threading.Event().wait(PAUSE_S if num_steps is None else 0)
            step += 1
            stops += (folder / "stop").exists() if num_steps is None else step >= num_steps
            dist.all_reduce(stops)
    telemetry.stop()
    dist.destroy_process_group()


def _train(model: nn.Module, optimizer: torch.optim.Optimizer, rank: int, step: int) -> str:
    """Run a step. Return the bits of its loss."""
    rows = torch.randn(8, 16, generator=torch.Generator().manual_seed(1000 * step + rank))
    with telemetry.span(Stage.FORWARD_COMPUTE):
        loss = model(rows).square().mean()
    with telemetry.span(Stage.BACKWARD_COMPUTE):
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.item().hex()


if __name__ == "__main__":
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else None)
