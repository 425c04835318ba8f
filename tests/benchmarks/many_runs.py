"""Runs for a full store: thousands of short ones, and one of a million steps.

short    8 ranks, 100 steps          experiments of some years
endless  4 ranks, 1,000,000 steps    a job of months
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from telemetry.stages import Stage
from telemetry.stores.interface import Store
from telemetry.tables import ENDED_WELL, HEARTBEATS, RANKS, SAMPLES, SPANS
from telemetry.topology import Topology

FIRST_NS = 1_790_000_000_000_000_000
STEP_NS = 400_000_000
RUN_EVERY_NS = 60_000_000_000
STEPS_A_BLOCK = 100_000
RUNS_A_BLOCK = 100
SCATTER = 0.02
TIMES_NS = {
    Stage.DATA_LOAD: 4_000_000,
    Stage.FORWARD_COMPUTE: 110_000_000,
    Stage.BACKWARD_COMPUTE: 210_000_000,
    Stage.GRADS_ALL_REDUCE: 40_000_000,
    Stage.OPTIMIZER: 20_000_000,
}
"""The stages of a step, in order."""
METRICS = {"loss": 2.5, "tokens-per-second": 100_000.0, "mfu": 0.41}
ENDLESS = "endless"

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeRuns:
    """Runs of one shape. The same fields make the same rows."""

    names: tuple[str, ...]
    topology: Topology
    num_steps: int
    first_ns: int = FIRST_NS

    def store(self, store: Store) -> None:
        """Insert all of them."""
        steps_a_block = max(1, STEPS_A_BLOCK // len(self.names))
        for first in range(0, self.num_steps, steps_a_block):
            steps = np.arange(first, min(first + steps_a_block, self.num_steps))
            for table in self._spans(steps):
                store.insert("spans", self._owned(table))
            store.insert("samples", self._owned(self._samples(steps)))
        store.insert("heartbeats", self._owned(self._heartbeats()))
        store.insert("ranks", self._owned(self._ranks()))

    def _begins_ns(self, steps: Ints) -> Ints:
        """The start of each step: [runs, steps]."""
        runs_ns = self.first_ns + np.arange(len(self.names)) * RUN_EVERY_NS
        return np.asarray(runs_ns[:, None] + steps * STEP_NS)

    def _spans(self, steps: Ints) -> Iterator[pa.Table]:
        """A table for each stage; the ``step`` spans last."""
        draw = np.random.default_rng(int(steps[0]))
        shape = len(self.names), len(steps), self.topology.world_size
        at_ns = np.broadcast_to(self._begins_ns(steps)[..., None], shape)
        start_ns = at_ns
        for number, (stage, usual_ns) in enumerate(TIMES_NS.items()):
            lasts_ns = (usual_ns * (1 + SCATTER * draw.standard_normal(shape, dtype=np.float32))).astype(np.int64)
            yield self._of_stage(stage, number, steps, start_ns, lasts_ns)
            start_ns = start_ns + lasts_ns
        yield self._of_stage(Stage.STEP, len(TIMES_NS), steps, at_ns, start_ns - at_ns)

    def _of_stage(self, stage: Stage, number: int, steps: Ints, start_ns: Ints, lasts_ns: Ints) -> pa.Table:
        told = {
            "rank": np.arange(self.topology.world_size),
            "seq": (steps * (len(TIMES_NS) + 1) + number)[:, None],
            "stage": int(stage),
            "stream": int(stage.stream),
            "step": steps[:, None],
            "start_ns": start_ns,
            "duration_ns": lasts_ns,
        } | dict.fromkeys(("microbatch", "chunk", "peer", "cpu_ns"), -1)
        return _table(SPANS, told, start_ns.shape)

    def _samples(self, steps: Ints) -> pa.Table:
        names = list(METRICS)
        shape = len(self.names), len(names), len(steps)
        told = {
            "seq": 10**9 + steps * len(names) + np.arange(len(names))[:, None],
            "step": steps,
            "at_ns": self._begins_ns(steps)[:, None, :],
            "value": np.array(list(METRICS.values()))[:, None] * (1 + 0.01 * np.sin(steps / 50)),
        }
        numbers = np.broadcast_to(np.arange(len(names))[:, None], shape)
        rows = _table(SAMPLES, told, shape)
        metrics = pa.array(names).take(pa.array(numbers.ravel()))
        return rows.set_column(SAMPLES.get_field_index("metric"), SAMPLES.field("metric"), metrics)

    def _heartbeats(self) -> pa.Table:
        shape = len(self.names), self.topology.world_size
        ends_ns = self._begins_ns(np.array([self.num_steps]))
        told = {"rank": np.arange(shape[1]), "at_ns": ends_ns, "beat_ns": ends_ns, "step": self.num_steps - 1}
        return _table(HEARTBEATS, told | {"ended": ENDED_WELL}, shape)

    def _ranks(self) -> pa.Table:
        shape = len(self.names), self.topology.world_size
        sizes = {"dp_size": self.topology.dp, "pp_size": self.topology.pp, "tp_size": self.topology.tp}
        starts_ns = self._begins_ns(np.array([0]))
        told = sizes | {"rank": np.arange(shape[1]), "local_rank": np.arange(shape[1]), "started_ns": starts_ns}
        rows = _table(RANKS, told, shape)
        meta = pa.array(['{"recipe": "made", "model": "none"}'] * rows.num_rows)
        return rows.set_column(RANKS.get_field_index("meta"), "meta", meta)

    def _owned(self, rows: pa.Table) -> pa.Table:
        numbers = np.repeat(np.arange(len(self.names), dtype=np.int32), rows.num_rows // len(self.names))
        runs = pa.DictionaryArray.from_arrays(pa.array(numbers), list(self.names))
        attempts = pa.repeat(pa.scalar(0, pa.uint32()), rows.num_rows)
        return rows.append_column("run_id", runs).append_column("attempt", attempts)


def short_runs(number: int, first: int = 0) -> Iterator[MadeRuns]:
    """``number`` runs of 8 ranks and 100 steps, in blocks."""
    for begin in range(first, first + number, RUNS_A_BLOCK):
        names = tuple(f"run-{one:05d}" for one in range(begin, min(begin + RUNS_A_BLOCK, first + number)))
        first_ns = FIRST_NS + begin * RUN_EVERY_NS
        yield MadeRuns(names=names, topology=Topology(dp=2, pp=2, tp=2), num_steps=100, first_ns=first_ns)


def endless_run(num_steps: int = 1_000_000) -> MadeRuns:
    """The run of a million steps."""
    return MadeRuns(names=(ENDLESS,), topology=Topology(dp=4), num_steps=num_steps)


def _table(schema: pa.Schema, values: dict[str, object], shape: tuple[int, ...]) -> pa.Table:
    """Rows of ``shape``. A column without values is zero, or empty text."""
    columns = []
    for field in schema:
        if field.type == pa.string():
            columns.append(pa.array([""] * int(np.prod(shape))))
            continue
        column = np.broadcast_to(np.asarray(values.get(field.name, 0)), shape)
        columns.append(pa.array(column.ravel().astype(field.type.to_pandas_dtype())))
    return pa.Table.from_arrays(columns, schema=schema)
