"""Steps with and without the readiness for a hang, in two jobs that take turns on the same cores.

job "bare"     spans recorded                                         s s         s s      ...
job "ready"    the same, and: worker server, flight recorder,             S S         S S  ...
               an agent that reads its pages                          (stopped while the other job steps)

The flight recorder belongs to a process, so each side has its own processes. ``paired_steps.py`` has both sides in one
process.

python -m tests.benchmarks.evidence_cost DP PP TP PAIRS      prints the cost of each block, as JSON
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing

import telemetry
from telemetry.record import session
from telemetry.record.collectives.process_group import register_traced_backend
from telemetry.record.worker_server import FLIGHT_ENTRIES, FLIGHT_RECORDER
from trainer.config import ParallelConfig, TrainConfig
from trainer.data.batches import Batches, Loader
from trainer.data.tokens import load_tokens
from trainer.faults.act import Healthy
from trainer.loop import Trainer
from trainer.parallel.mesh import make_grid
from trainer.recipes import tiny_cpu

NUM_WARMUP = 3
STEPS_PER_BLOCK = 2
CPU = torch.device("cpu")
WATCH = """
import sys, threading
from pathlib import Path
from telemetry.agent.watch import EvidenceWatch
EvidenceWatch(Path(sys.argv[1])).start()
threading.Event().wait()
"""
Spent = tuple[float, float]
"""Wall and processor seconds of a step."""


class Turns:
    """One of the two jobs, as seen from outside."""

    def __init__(self, config: TrainConfig, folder: Path, *, ready: bool) -> None:
        folder.mkdir()
        ranks = config.parallel.topology.world_size
        pairs = [Pipe() for _ in range(ranks)]
        self._ends = [ours for ours, _ in pairs]
        arguments = (config, folder, ready, [theirs for _, theirs in pairs])
        self._job: Any = torch.multiprocessing.start_processes(
            _rank, args=arguments, nprocs=ranks, join=False, start_method="fork"
        )
        for end in self._ends:
            end.recv()

    def block(self) -> list[Spent]:
        """Run a few steps. Returns their cost by rank."""
        for end in self._ends:
            end.send(True)
        return [end.recv() for end in self._ends]

    def end(self) -> None:
        for end in self._ends:
            end.send(False)
        for process in self._job.processes:
            process.join(30)
            process.kill()


def run_turns(config: TrainConfig, num_pairs: int) -> list[list[tuple[Spent, Spent]]]:
    """By rank and pair: the cost of the bare block and of the ready block."""
    config = replace(config, num_steps=(num_pairs + NUM_WARMUP) * STEPS_PER_BLOCK)
    with tempfile.TemporaryDirectory(prefix="rankscope-evidence-") as name:
        folder = Path(name)
        bare, ready = Turns(config, folder / "bare", ready=False), Turns(config, folder / "ready", ready=True)
        try:
            with _watch(folder / "ready" / "spool") as watch:
                return _alternate(bare, ready, watch, num_pairs)
        finally:
            bare.end()
            ready.end()


def _alternate(
    bare: Turns, ready: Turns, watch: "subprocess.Popen[bytes]", num_pairs: int
) -> list[list[tuple[Spent, Spent]]]:
    def watched() -> list[Spent]:
        watch.send_signal(signal.SIGCONT)
        try:
            return ready.block()
        finally:
            watch.send_signal(signal.SIGSTOP)

    for _ in range(NUM_WARMUP):
        bare.block(), watched()
    pairs = []
    for number in range(num_pairs):
        first, second = (bare.block, watched) if number % 2 == 0 else (watched, bare.block)
        one, other = first(), second()
        pairs.append((one, other) if number % 2 == 0 else (other, one))
    return [[(plain[rank], armed[rank]) for plain, armed in pairs] for rank in range(len(pairs[0][0]))]


@contextmanager
def _watch(spool: Path) -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen([sys.executable, "-c", WATCH, str(spool)])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _rank(rank: int, config: TrainConfig, folder: Path, ready: bool, ends: Sequence[Connection]) -> None:
    torch.set_num_threads(1)
    os.environ[FLIGHT_RECORDER] = str(FLIGHT_ENTRIES if ready else 0)
    if not ready:
        session.start_worker_server = lambda _: {}
    topology = config.parallel.topology
    telemetry.start("cost", topology=topology, rank=rank, attempt=0, spool=folder / "spool", agent=False)
    backend = register_traced_backend("gloo")
    dist.init_process_group(backend, init_method=f"file://{folder}/meet", rank=rank, world_size=topology.world_size)
    trainer = Trainer(config, make_grid(topology, CPU), Healthy())
    tokens = load_tokens(config.data, vocab_size=config.model.vocab_size)
    batches = Batches(tokens, config, dp_index=topology.place(rank).dp)
    with Loader(batches.at, steps=range(config.num_steps), depth=2, device=CPU) as loader:
        _take_turns(trainer, loader, ends[rank])
    telemetry.stop()
    os._exit(0)


def _take_turns(trainer: Trainer, loader: Loader, end: Connection) -> None:
    number = 0
    end.send(True)
    while end.recv():
        dist.barrier()
        wall, processor = time.perf_counter(), time.process_time()
        for _ in range(STEPS_PER_BLOCK):
            with telemetry.step(number):
                trainer.step(number, loader)
            number += 1
        dist.barrier()
        spent = time.perf_counter() - wall, time.process_time() - processor
        end.send((spent[0] / STEPS_PER_BLOCK, spent[1] / STEPS_PER_BLOCK))


def main(arguments: list[str]) -> int:
    dp, pp, tp, num_pairs = map(int, arguments)
    parallel = ParallelConfig(dp=dp, pp=pp, tp=tp, num_microbatches=tiny_cpu().parallel.num_microbatches)
    json.dump(run_turns(replace(tiny_cpu(), parallel=parallel), num_pairs), sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
