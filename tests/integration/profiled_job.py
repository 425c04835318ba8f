"""A small training of gloo ranks, and the bits of each loss."""

import os
import signal
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
from tests.trainer.launchers import Launched, start_forked

RUN = "profiled"
PAUSE_S = 0.1


def start(folder: Path, num_ranks: int, num_steps: int | None = None) -> Launched:
    """Start the training. It writes into ``folder``. None: it runs until the file ``stop`` exists there."""
    arguments = (str(folder), str(num_ranks), str(num_steps or ""))
    return start_forked(f"{__name__}:run", *arguments, log=folder / "job.log")


def run(folder: str, num_ranks: str, num_steps: str) -> None:
    """In the child."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    arguments = (Path(folder), int(num_ranks), int(num_steps) if num_steps else None)
    torch.multiprocessing.start_processes(_run_rank, args=arguments, nprocs=int(num_ranks), start_method="fork")


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
