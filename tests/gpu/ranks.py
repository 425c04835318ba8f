"""Ranks of a job under NCCL, a GPU each, which record in traced groups."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing

import telemetry
from telemetry.record.collectives.process_group import register_traced_backend
from telemetry.record.reader import RankReader, find_rank_dirs
from telemetry.records import RankIdentity
from telemetry.topology import Topology
from tests.deadline import until

RUN = "gpu"
Work = Callable[[int, Path], None]
"""What a rank does, given its number and the folder of the job."""


def run_ranks(work: Work, topology: Topology, folder: Path) -> None:
    """Run ``work`` in every rank to its end."""
    _start(work, topology, folder).join()


@contextmanager
def ranks_at_work(work: Work, topology: Topology, folder: Path) -> Iterator[list[RankIdentity]]:
    """Yields the identities of the ranks after each has put ``ready-N`` into the folder. Kills the ranks at exit."""
    ranks = _start(work, topology, folder)
    try:
        until(lambda: len(list(folder.glob("ready-*"))) == topology.world_size, seconds=60, what="all ranks at work")
        yield [RankReader(place).identity() for place in find_rank_dirs(folder, RUN, 0)]
    finally:
        for process in ranks.processes:
            process.kill()


def ready(rank: int, folder: Path) -> None:
    (folder / f"ready-{rank}").touch()


def _start(work: Work, topology: Topology, folder: Path) -> Any:
    folder.mkdir(parents=True, exist_ok=True)
    arguments = (work, str(topology), folder)
    return torch.multiprocessing.start_processes(
        _rank, args=arguments, nprocs=topology.world_size, start_method="spawn", join=False
    )


def _rank(rank: int, work: Work, mesh: str, folder: Path) -> None:
    os.environ["TORCH_NCCL_ENABLE_TIMING"] = "1"
    torch.cuda.set_device(rank)
    topology = Topology.parse(mesh)
    started = telemetry.start(
        RUN, topology=topology, rank=rank, local_rank=rank, attempt=0, spool=folder, agent=False, device="cuda"
    )
    assert started.recording
    backend = register_traced_backend("nccl")
    dist.init_process_group(backend, init_method=f"file://{folder}/meet", rank=rank, world_size=topology.world_size)
    work(rank, folder)
    telemetry.stop()
    dist.destroy_process_group()
