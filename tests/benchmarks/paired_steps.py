"""Steps with and without telemetry, in the same processes, in turn.

every rank   plain groups, nothing recorded     s s         s s      ...
             traced groups, every span              T T T T      ...      a model each; the first side alternates

python -m tests.benchmarks.paired_steps DP PP TP PAIRS      prints the cost of each block, as JSON
"""

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

import telemetry
from telemetry.record.collectives.process_group import register_traced_backend
from telemetry.record.reader import RankReader, find_rank_dirs
from telemetry.record.segments import decode_spans
from telemetry.topology import AXES, Topology
from trainer.config import ParallelConfig, TrainConfig
from trainer.data.batches import Batches, Loader
from trainer.data.tokens import load_tokens
from trainer.faults.act import Healthy
from trainer.loop import Trainer
from trainer.parallel.mesh import Grid
from trainer.recipes import tiny_cpu

NUM_WARMUP = 3
STEPS_PER_BLOCK = 2
CPU = torch.device("cpu")


class OwnMesh:
    """The mesh of one side, whose axes have names of their own.

    DTensor treats two meshes with the same names and ranks as one. Then the traced side would use plain groups.
    """

    def __init__(self, topology: Topology, side: str) -> None:
        shape, names = (topology.dp, topology.pp, topology.tp), tuple(f"{side}_{axis}" for axis in AXES)
        backends: dict[int | str, Any] = dict.fromkeys(names, "gloo")
        self._side = side
        self._mesh = init_device_mesh(CPU.type, shape, mesh_dim_names=names, backend_override=backends)

    def __getitem__(self, axis: str) -> DeviceMesh:
        return self._mesh[f"{self._side}_{axis}"]

    def get_group(self, axis: str) -> dist.ProcessGroup:
        """As in a DeviceMesh."""
        return self._mesh.get_group(f"{self._side}_{axis}")


class Side:
    """One of the two trainings of a rank."""

    def __init__(self, config: TrainConfig, loader: Loader, folder: Path, *, traced: bool) -> None:
        """Its groups are traced if tracing was registered before."""
        topology = config.parallel.topology
        mesh: Any = OwnMesh(topology, "traced" if traced else "plain")
        self.grid = Grid(topology=topology, rank=dist.get_rank(), device=CPU, mesh=mesh)
        self.trainer = Trainer(config, self.grid, Healthy())
        self.loader = loader
        self.traced = traced
        self.folder = folder
        self.number = 0

    def block(self) -> tuple[float, float]:
        """Wall and processor seconds per step, over a few steps, without start and stop of the session."""
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

    def num_collectives(self) -> int:
        """Collectives and transfers that all blocks of this rank recorded."""
        folders = find_rank_dirs(self.folder / "spool")
        own = [folder for folder in folders if RankReader(folder).identity().rank == self.grid.rank]
        return sum(_num_collectives(RankReader(folder)) for folder in own)

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
    """By rank and pair: the cost of the plain block and of the traced block."""
    num_steps = (num_pairs + NUM_WARMUP) * STEPS_PER_BLOCK
    ranks = config.parallel.topology.world_size
    with tempfile.TemporaryDirectory(prefix="rankscope-overhead-") as name:
        arguments = (replace(config, num_steps=num_steps), num_pairs, Path(name))
        torch.multiprocessing.start_processes(_rank, args=arguments, nprocs=ranks, start_method="fork")
        return [json.loads((Path(name) / f"{rank}.json").read_text()) for rank in range(ranks)]


def _rank(rank: int, config: TrainConfig, num_pairs: int, folder: Path) -> None:
    torch.set_num_threads(1)
    topology = config.parallel.topology
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=topology.world_size)
    with _loader(config, topology.place(rank).dp) as first, _loader(config, topology.place(rank).dp) as second:
        plain = Side(config, first, folder, traced=False)
        register_traced_backend("gloo")
        trace = Side(config, second, folder, traced=True)
        for side in (plain, trace) * NUM_WARMUP:
            side.block()
        pairs = [_pair(plain, trace, plain_first=number % 2 == 0) for number in range(num_pairs)]
    assert trace.num_collectives(), "no collective was recorded: this torch has no room for the seam"
    (folder / f"{rank}.json").write_text(json.dumps(pairs))
    dist.destroy_process_group()


def _pair(plain: Side, trace: Side, *, plain_first: bool) -> tuple[tuple[float, float], tuple[float, float]]:
    if plain_first:
        return plain.block(), trace.block()
    traced = trace.block()
    return plain.block(), traced


def _num_collectives(reader: RankReader) -> int:
    block = reader.read()
    spans = decode_spans(block.records, block.first_seq, lambda at_ns: at_ns)
    return int((spans["op_seq"] > 0).sum())


@contextmanager
def _loader(config: TrainConfig, dp_index: int) -> Iterator[Loader]:
    batches = Batches(load_tokens(config.data, vocab_size=config.model.vocab_size), config, dp_index=dp_index)
    with Loader(batches.at, steps=range(config.num_steps), depth=2, device=CPU) as loader:
        yield loader


def main(arguments: list[str]) -> int:
    dp, pp, tp, num_pairs = map(int, arguments)
    parallel = ParallelConfig(dp=dp, pp=pp, tp=tp, num_microbatches=tiny_cpu().parallel.num_microbatches)
    json.dump(run_ranks(replace(tiny_cpu(), parallel=parallel), num_pairs), sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
