"""Runs for a full store: thousands of short ones, one of a million steps, and one with many attempts.

short      8 ranks, 100 steps             experiments of some years
endless    4 ranks, 1,000,000 steps       a job of months
restarted  8 ranks, 30 attempts of 2,000  each continues 100 steps before the end of the one before it

Rows go through ``Store.insert``, in blocks of complete steps in the order of the table, as a collector inserts them.
The engine makes the roll-ups. ``tests/telemetry/collector/test_made_runs.py`` compares the tables with those of a
collector that received the same rows.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date

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
ROWS_A_BLOCK = 1_000_000
"""Spans in one insert. A collector inserts about 600,000 at full speed."""
RUNS_A_BLOCK = 100
RANKS_A_HOST = 8
SCATTER = 0.02
TIMES_NS = {
    Stage.DATA_LOAD: 4_000_000,
    Stage.FORWARD_COMPUTE: 110_000_000,
    Stage.BACKWARD_COMPUTE: 210_000_000,
    Stage.GRADS_ALL_REDUCE: 40_000_000,
    Stage.OPTIMIZER: 20_000_000,
}
"""The stages of a step, in order."""
SPANS_A_STEP = len(TIMES_NS) + 1
METRICS = {"loss": 2.5, "tokens-per-second": 100_000.0, "mfu": 0.41}
ENDLESS, RESTARTED = "endless", "restarted"
NUM_ATTEMPTS, STEPS_AN_ATTEMPT, STEPS_LOST = 30, 2000, 100

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeRuns:
    """Runs of one shape. The same fields make the same rows."""

    names: tuple[str, ...]
    topology: Topology
    num_steps: int
    first_ns: int = FIRST_NS
    first_step: int = 0
    attempt: int = 0
    step_ns: int = STEP_NS
    stored_on: date | None = None
    """The day on which the rows count as stored. None: the day of the insert."""

    @property
    def num_spans(self) -> int:
        return len(self.names) * self.num_steps * self.topology.world_size * SPANS_A_STEP

    @property
    def _records_a_step(self) -> Ints:
        """Records of each rank in a step. Rank 0 also records the metrics, after its spans."""
        return np.where(np.arange(self.topology.world_size) == 0, SPANS_A_STEP + len(METRICS), SPANS_A_STEP)

    def store(self, store: Store) -> None:
        """Insert all of them."""
        for name, rows in self.rows():
            store.insert(name, rows)

    def rows(self) -> Iterator[tuple[str, pa.Table]]:
        """Names of tables, each with rows of one insert."""
        spans_a_step = self.num_spans // max(1, self.num_steps)
        steps_a_block = max(1, ROWS_A_BLOCK // spans_a_step)
        end = self.first_step + self.num_steps
        for first in range(self.first_step, end, steps_a_block):
            steps = np.arange(first, min(first + steps_a_block, end))
            yield "spans", pa.concat_tables(self._records(table) for table in self._spans(steps))
            yield "samples", self._records(self._samples(steps))
        yield "heartbeats", self._owned(self._heartbeats())
        yield "ranks", self._owned(self._ranks())

    def _records(self, rows: pa.Table) -> pa.Table:
        """``rows`` of one table with the folder of their rank, and the day on which they are stored."""
        rows = self._owned(rows)
        folders_ns = np.repeat(self._begins_ns(np.array([self.first_step])), rows.num_rows // len(self.names))
        rows = rows.append_column("opened_ns", pa.array(folders_ns))
        if self.stored_on is None:
            return rows
        return rows.append_column("inserted_on", pa.repeat(pa.scalar(self.stored_on, pa.date32()), rows.num_rows))

    def _begins_ns(self, steps: Ints) -> Ints:
        """The start of each step: [runs, steps]."""
        runs_ns = self.first_ns + np.arange(len(self.names)) * RUN_EVERY_NS
        return np.asarray(runs_ns[:, None] + (steps - self.first_step) * self.step_ns)

    def _spans(self, steps: Ints) -> Iterator[pa.Table]:
        """A table for each stage, in the order of their codes."""
        draw = np.random.default_rng(int(steps[0]))
        shape = len(self.names), len(steps), self.topology.world_size
        at_ns = np.broadcast_to(self._begins_ns(steps)[..., None], shape)
        start_ns, made = at_ns, {}
        for number, (stage, usual_ns) in enumerate(TIMES_NS.items()):
            usual_ns = usual_ns * self.step_ns // STEP_NS
            lasts_ns = (usual_ns * (1 + SCATTER * draw.standard_normal(shape, dtype=np.float32))).astype(np.int64)
            made[stage] = self._of_stage(stage, number, steps, start_ns, lasts_ns)
            start_ns = start_ns + lasts_ns
        made[Stage.STEP] = self._of_stage(Stage.STEP, len(TIMES_NS), steps, at_ns, start_ns - at_ns)
        yield from (made[stage] for stage in sorted(made))

    def _of_stage(self, stage: Stage, number: int, steps: Ints, start_ns: Ints, lasts_ns: Ints) -> pa.Table:
        told = {
            "rank": np.arange(self.topology.world_size),
            "seq": (steps - self.first_step)[:, None] * self._records_a_step + number,
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
            "seq": (steps - self.first_step) * self._records_a_step[0] + SPANS_A_STEP + np.arange(len(names))[:, None],
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
        end = self.first_step + self.num_steps
        ends_ns = self._begins_ns(np.array([end]))
        told = {"rank": np.arange(shape[1]), "at_ns": ends_ns, "beat_ns": ends_ns, "step": end - 1}
        return _table(HEARTBEATS, told | {"ended": ENDED_WELL}, shape)

    def _ranks(self) -> pa.Table:
        shape = len(self.names), self.topology.world_size
        sizes = {"dp_size": self.topology.dp, "pp_size": self.topology.pp, "tp_size": self.topology.tp}
        starts_ns = self._begins_ns(np.array([self.first_step]))
        told = sizes | {
            "rank": np.arange(shape[1]),
            "local_rank": np.arange(shape[1]) % RANKS_A_HOST,
            "started_ns": starts_ns,
            "opened_ns": starts_ns,
        }
        rows = _table(RANKS, told, shape)
        hosts = [f"host-{rank // RANKS_A_HOST:04d}" for rank in range(shape[1])] * shape[0]
        texts = {"host": hosts, "meta": ['{"recipe": "made", "model": "none"}'] * rows.num_rows}
        for name, text in texts.items():
            rows = rows.set_column(RANKS.get_field_index(name), name, pa.array(text))
        return rows

    def _owned(self, rows: pa.Table) -> pa.Table:
        numbers = np.repeat(np.arange(len(self.names), dtype=np.int32), rows.num_rows // len(self.names))
        runs = pa.DictionaryArray.from_arrays(pa.array(numbers), list(self.names))
        attempts = pa.repeat(pa.scalar(self.attempt, pa.uint32()), rows.num_rows)
        return rows.append_column("run_id", runs).append_column("attempt", attempts)


def short_runs(number: int, first: int = 0, stored_on: date | None = None) -> Iterator[MadeRuns]:
    """``number`` runs of 8 ranks and 100 steps, in blocks."""
    for begin in range(first, first + number, RUNS_A_BLOCK):
        names = tuple(f"run-{one:05d}" for one in range(begin, min(begin + RUNS_A_BLOCK, first + number)))
        first_ns = FIRST_NS + begin * RUN_EVERY_NS
        grid = Topology(dp=2, pp=2, tp=2)
        yield MadeRuns(names=names, topology=grid, num_steps=100, first_ns=first_ns, stored_on=stored_on)


def endless_run(num_steps: int = 1_000_000) -> MadeRuns:
    """The run of a million steps."""
    return MadeRuns(names=(ENDLESS,), topology=Topology(dp=4), num_steps=num_steps)


def restarted_run() -> Iterator[MadeRuns]:
    """The attempts of the run that was restarted often."""
    for attempt in range(NUM_ATTEMPTS):
        first_ns = FIRST_NS + attempt * (STEPS_AN_ATTEMPT * STEP_NS + RUN_EVERY_NS)
        yield MadeRuns(
            names=(RESTARTED,),
            topology=Topology(dp=2, pp=2, tp=2),
            num_steps=STEPS_AN_ATTEMPT,
            first_step=attempt * (STEPS_AN_ATTEMPT - STEPS_LOST),
            attempt=attempt,
            first_ns=first_ns,
        )


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
