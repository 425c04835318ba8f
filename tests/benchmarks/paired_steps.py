"""Steps with and without telemetry, in the same processes, in turn.

every rank   plain groups, nothing recorded     s s         s s      ...
             traced groups, every span              T T T T      ...      a model each; who goes first alternates

python -m tests.benchmarks.paired_steps DP PP TP PAIRS      prints what each block cost, as JSON
"""

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing

import telemetry
from telemetry.integrations.process_group import register_traced_backend
from trainer.config import ParallelConfig, TrainConfig
from trainer.data.batches import Batches, Loader
from trainer.data.tokens import load_tokens
from trainer.fault.act import Healthy
from trainer.loop import Trainer
from trainer.parallel.mesh import make_grid
from trainer.recipes import tiny_cpu

NUM_WARMUP = 3
STEPS_PER_BLOCK = 2
CPU = torch.device("cpu")


class Side:
    """One of the two trainings of a rank."""

    def __init__(self, config: TrainConfig, loader: Loader, backend: str, folder: Path) -> None:
        self.grid = make_grid(config.parallel.topology, CPU, backend=backend)
        self.trainer = Trainer(config, self.grid, Healthy())
        self.loader = loader
        self.traced = backend != "gloo"
        self.folder = folder
        self.number = 0

    def block(self) -> tuple[float, float]:
        """Wall and processor seconds a step, over a few. Starting and stopping the session is not counted."""
        if self.traced:
            self._start()
        dist.barrier()
        wall, processor = time.perf_counter(), time.process_time()
        for _ in range(STEPS_PER_BLOCK):
            with telemetry.step(self.number):
                self.trainer.step(self.number, self.loader)
            self.number += 1
        dist.barrier()
        spent = time.perf_counter() - wall, time.process_time() - processor
        telemetry.stop()
        return spent[0] / STEPS_PER_BLOCK, spent[1] / STEPS_PER_BLOCK

    def _start(self) -> None:
        telemetry.start(
            run="overhead",
            attempt=self.number,
            topology=self.grid.topology,
            rank=self.grid.rank,
            local_rank=self.grid.rank,
            spool=self.folder / "spool",
            agent=False,
        )


def run_ranks(config: TrainConfig, num_pairs: int) -> list[list[list[tuple[float, float]]]]:
    """By rank and pair: what the plain and the traced block cost."""
    num_steps = (num_pairs + NUM_WARMUP) * STEPS_PER_BLOCK
    ranks = config.parallel.topology.world_size
    with tempfile.TemporaryDirectory(prefix="rankscope-overhead-") as name:
        arguments = (replace(config, num_steps=num_steps), num_pairs, Path(name))
        torch.multiprocessing.start_processes(_rank, args=arguments, nprocs=ranks, start_method="fork")
        return [json.loads((Path(name) / f"{rank}.json").read_text()) for rank in range(ranks)]


def _rank(rank: int, config: TrainConfig, num_pairs: int, folder: Path) -> None:
    torch.set_num_threads(1)
    topology = config.parallel.topology
    traced = register_traced_backend("gloo")
    assert traced != "gloo", "this torch has no room for the seam"
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=topology.world_size)
    with _loader(config, topology.place(rank).dp) as first, _loader(config, topology.place(rank).dp) as second:
        plain, trace = Side(config, first, "gloo", folder), Side(config, second, traced, folder)
        for side in (plain, trace) * NUM_WARMUP:
            side.block()
        pairs = [_pair(plain, trace, plain_first=number % 2 == 0) for number in range(num_pairs)]
    (folder / f"{rank}.json").write_text(json.dumps(pairs))
    dist.destroy_process_group()


def _pair(plain: Side, trace: Side, *, plain_first: bool) -> tuple[tuple[float, float], tuple[float, float]]:
    if plain_first:
        return plain.block(), trace.block()
    traced = trace.block()
    return plain.block(), traced


@contextmanager
def _loader(config: TrainConfig, dp_index: int) -> Iterator[Loader]:
    batches = Batches(load_tokens(config.data, vocab_size=config.model.vocab_size), config, dp_index=dp_index)
    with Loader(batches.at, num_steps=config.num_steps, depth=2, device=CPU) as loader:
        yield loader


def main(arguments: list[str]) -> int:
    dp, pp, tp, num_pairs = map(int, arguments)
    parallel = ParallelConfig(dp=dp, pp=pp, tp=tp, num_microbatches=tiny_cpu().parallel.num_microbatches)
    json.dump(run_ranks(replace(tiny_cpu(), parallel=parallel), num_pairs), sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
