"""Runs a function in two traced gloo ranks."""

import os
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing

import telemetry
from telemetry.record.collectives.process_group import register_traced_backend
from telemetry.topology import Topology


def two_ranks(
    work: Callable[[int], None], folder: Path, *, grid: Topology | None = None, backend: str | None = "gloo"
) -> None:
    """Run ``work(rank)`` in each of two processes. Without a ``grid``, the mesh is not known."""
    torch.multiprocessing.start_processes(_join, args=(work, folder, grid, backend), nprocs=2, start_method="fork")


def _join(rank: int, work: Callable[[int], None], folder: Path, grid: Topology | None, backend: str | None) -> None:
    torch.set_num_threads(1)
    os.environ["WORLD_SIZE"] = "2"
    telemetry.start("pair", topology=grid, rank=rank, spool=folder, agent=False)
    named = register_traced_backend(backend)
    dist.init_process_group(named, init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    work(rank)
    if dist.is_initialized():
        dist.destroy_process_group()
    telemetry.stop()
