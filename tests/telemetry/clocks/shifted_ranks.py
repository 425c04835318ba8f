"""Eight real gloo ranks on four hosts, simulated on one machine. The wall clock of each host has a known offset.

host-0: ranks 0, 1    host-1: ranks 2, 3 ...       a rank reads its wall clock once, to tie its stamps to it
"""

import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing

import telemetry
from telemetry.record.clocks import interface as host_clock
from telemetry.record.collectives.process_group import register_traced_backend
from telemetry.topology import Topology

GRID = Topology(dp=4, pp=1, tp=2)
STEPS, COLLECTIVES = 12, 4
"""Of each step."""
OFFSETS_NS = (0, 4_300_000_000, -2_700_000_000, 90_000_000)
"""Of each host."""
RUN = "shifted"


def host_of(rank: int) -> int:
    return rank // GRID.tp


def train_shifted(folder: Path) -> None:
    """Rank files of all ranks lie in ``folder`` when this returns."""
    torch.multiprocessing.start_processes(_train_rank, args=(folder,), nprocs=GRID.world_size, start_method="fork")


def _train_rank(rank: int, folder: Path) -> None:
    offset_ns = OFFSETS_NS[host_of(rank)]
    host_clock.time_ns = lambda: time.time_ns() + offset_ns
    torch.set_num_threads(1)
    telemetry.start(RUN, topology=GRID, rank=rank, host=f"host-{host_of(rank)}", spool=folder, agent=False)
    backend = register_traced_backend("gloo")
    dist.init_process_group(backend, init_method=f"file://{folder}/meet", rank=rank, world_size=GRID.world_size)
    groups = [dist.new_group(list(group)) for group in GRID.groups(along="dp")]
    mine = groups[rank % GRID.tp]
    for number in range(STEPS):
        with telemetry.step(number):
            for _ in range(COLLECTIVES):
                dist.all_reduce(torch.ones(64), group=mine)
    dist.barrier()
    dist.destroy_process_group()
    telemetry.stop()
