"""A small job on one host: four ranks that compute, each over a file of its own that is mapped into its memory.

python -m tests.scenarios.mapped_ranks SPOOL DATA [PROCS]

A step is some work, then a wait for all ranks. With PROCS (``cgroup.procs`` of a cgroup) rank 2 joins this cgroup
before it maps its file, so that the pages of the file are counted there. The job runs until it is ended.
"""

import multiprocessing
import os
import sys
from multiprocessing.synchronize import Barrier
from pathlib import Path

import numpy as np

import telemetry
from telemetry import Stage, Topology

NUM_RANKS = 4
LIMITED_RANK = 2
FILE_BYTES = 64 * 2**20
PAGE_BYTES = 4096
PASSES = 10
"""Passes over numbers that fit into a cache, in each step."""
RUN = "busy"


def train(rank: int, together: Barrier, spool: Path, data: Path, procs: Path | None) -> None:
    """Run steps without end."""
    if procs is not None and rank == LIMITED_RANK:
        procs.write_text(str(os.getpid()))
    mapped = np.memmap(data / f"rank-{rank}", dtype=np.uint8, mode="r")
    numbers = np.random.default_rng(rank).random(100_000)
    telemetry.start(RUN, topology=Topology(dp=NUM_RANKS), rank=rank, host="box", attempt=0, spool=spool, agent=False)
    number = 0
    while True:
        with telemetry.step(number):
            with telemetry.span(Stage.FORWARD_COMPUTE):
                mapped[::PAGE_BYTES].sum()
                for _ in range(PASSES):
                    np.sort(numbers)
            with telemetry.span(Stage.GRADS_ALL_REDUCE):
                together.wait()
        number += 1


def write_data(data: Path) -> None:
    """Write the files of the ranks to the disk, and drop them from the page cache."""
    data.mkdir()
    for rank in range(NUM_RANKS):
        with (data / f"rank-{rank}").open("wb") as file:
            file.write(os.urandom(FILE_BYTES))
            file.flush()
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def main(spool: Path, data: Path, procs: Path | None = None) -> None:
    write_data(data)
    fork = multiprocessing.get_context("fork")
    together = fork.Barrier(NUM_RANKS)
    ranks = [fork.Process(target=train, args=(rank, together, spool, data, procs)) for rank in range(NUM_RANKS)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
