"""What the hosts of a large job record and send: made spans, samples, marks, heartbeats and host samples.

An agent of the benchmark is the agent of the product over a :class:`MadeHost` instead of rank files. Its records are
made when they are read, and depend only on the time:

    step 0                    step 1                    step 2
    |-- 101 spans per rank --|-- 101 spans per rank --|-- ... now
    0                       101                      202        position of a record in its rank

    seq of a rank: step * 104 + 0..100 spans, 101..102 samples, 103 a mark in every tenth step
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from telemetry.agent.host import FollowedRank, Host, Owner
from telemetry.agent.tail import Chunk
from telemetry.evidence.evidence import next_stamp_ns
from telemetry.records import RankIdentity
from telemetry.stages import Stage
from telemetry.tables import MARKS, SAMPLES, SPANS
from telemetry.topology import Topology
from tests.benchmarks.made_spans import SPANS_A_STEP, MadeJob

RUN = "fleet"
RANKS_A_HOST = 8
SEQS_A_STEP = SPANS_A_STEP + 3
METRICS = ("loss", "tokens-per-second")
STEPS_A_MARK = 10
NUM_SHAPES, STEPS_A_SHAPE = 16, 16
SLOW_RANK = 5
"""A run with one slow rank: diagnose must find it in what is stored."""
S = 1_000_000_000
LOG_LINE = "INFO trainer: saved the state of the data loader, 1024 samples ahead of step {step:07d}, rank {rank:05d}"

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A job of ``num_hosts`` hosts, whose first step begins at ``first_ns``, wall clock."""

    num_hosts: int
    first_ns: int
    period_ns: int
    """Time from step to step."""

    @property
    def topology(self) -> Topology:
        """Tensor parallel inside a host; pipelines of eight stages, if the number of hosts allows it."""
        pp = 8 if self.num_hosts % 8 == 0 else 1
        return Topology(dp=self.num_hosts // pp, pp=pp, tp=RANKS_A_HOST)


class Shapes:
    """Times of spans in some steps of some hosts, as parts of a step: arrays [host, step, rank, span]."""

    def __init__(self, period_ns: int) -> None:
        job = MadeJob(num_ranks=NUM_SHAPES * RANKS_A_HOST, num_steps=STEPS_A_SHAPE, slow_rank=SLOW_RANK)
        (rows,) = job.blocks(STEPS_A_SHAPE)
        shape = STEPS_A_SHAPE, NUM_SHAPES, RANKS_A_HOST, SPANS_A_STEP
        start_ns, duration_ns = (
            rows[name].to_numpy().reshape(shape).swapaxes(0, 1).astype(np.int64) for name in ("start_ns", "duration_ns")
        )
        start_ns -= start_ns[..., -1:]  # of the step of each rank, which is the last row
        stretch = period_ns / (start_ns + duration_ns + S // 1000).max()
        self.start_ns = (start_ns * stretch).astype(np.int64)
        self.duration_ns = (duration_ns * stretch).astype(np.int64)
        self.ends_ns = (self.start_ns + self.duration_ns).max(axis=2)
        """When all ranks of a host have recorded a span: [host, step, span]."""
        of_step = rows.slice(0, SPANS_A_STEP)
        self.columns = {name: of_step[name].to_numpy() for name in SPANS.names}
        self.meets_a_step = int((rows["op_seq"].to_numpy()[:SPANS_A_STEP] > 0).sum())


@dataclass(slots=True)
class Sums:
    """Number and checksums of spans, modulo 2^64, as ClickHouse sums them."""

    rows: int = 0
    seq: int = 0
    start_ns: int = 0
    duration_ns: int = 0

    def add(self, spans: pa.Table) -> None:
        """Add these rows."""
        sums = (int(spans[name].to_numpy().astype(np.uint64).sum()) for name in ("seq", "start_ns", "duration_ns"))
        self.join(Sums(spans.num_rows, *sums))

    def join(self, other: "Sums") -> None:
        """Add the rows of ``other``."""
        for name in ("rows", "seq", "start_ns", "duration_ns"):
            setattr(self, name, (getattr(self, name) + getattr(other, name)) % 2**64)


class MadeHost(Host):
    """The ranks of one host. They have recorded up to now."""

    def __init__(self, plan: Plan, number: int, shapes: Shapes) -> None:
        super().__init__(Path("made"))
        self._plan, self._shapes = plan, shapes
        self._shape = 1 + number % (NUM_SHAPES - 1) if number else 0
        self.name = f"host-{number:05d}"
        self.position = 0
        """Spans of each rank that are stored."""
        self.sums = Sums()
        self._taken = 0
        """Spans of each rank that were read."""
        self._is_frozen = False
        for local in range(RANKS_A_HOST):
            identity = self._identity(number * RANKS_A_HOST + local, local)
            self.ranks[Path(f"made/rank-{identity.rank:05d}")] = FollowedRank(tail=MadeTail(identity, self))  # type: ignore[arg-type]
        self._first_rank = number * RANKS_A_HOST

    def _identity(self, rank: int, local: int) -> RankIdentity:
        began_ns = self._plan.first_ns - S
        return RankIdentity(
            run_id=RUN, attempt=0, rank=rank, host=self.name, local_rank=local, pid=1000 + local,
            topology=self._plan.topology, started_ns=began_ns, opened_ns=began_ns, meta={"model": "made"},
        )  # fmt: skip

    @cached_property
    def _lead(self) -> FollowedRank:
        return next(iter(self.ranks.values()))

    def freeze(self) -> None:
        """Make no more records than were read until now."""
        self._is_frozen = True

    def find_ranks(self) -> None:
        """All are known."""

    def due(self) -> int:
        """Spans of each rank that have ended."""
        if self._is_frozen:
            return self._taken
        step, within_ns = divmod(time.time_ns() - self._plan.first_ns, self._plan.period_ns)
        ends_ns = self._shapes.ends_ns[self._shape, step % STEPS_A_SHAPE]
        return max(0, step * SPANS_A_STEP + int(np.searchsorted(ends_ns, within_ns, side="right")))

    def read(self, max_records: int) -> Iterator[tuple[FollowedRank, Chunk]]:
        """One chunk with the records of all ranks: on the wire they are one table in any case."""
        if not self._lead.announced or self.refused_runs:
            return
        first, end = self.position, min(self.due(), self.position + max_records // RANKS_A_HOST)
        if end <= first:
            return
        self._taken = end
        tables = {"spans": self.spans(first, end), "samples": self._samples(first, end)}
        steps = np.arange(first // SPANS_A_STEP, end // SPANS_A_STEP)
        if len(marked := steps[steps % STEPS_A_MARK == 0]):
            tables["marks"] = self._marks(marked)
        rows = {name: table for name, table in tables.items() if table.num_rows}
        yield self._lead, Chunk(num_records=sum(map(len, rows.values())), next_seq=end, tables=rows)

    def stored(self, chunk: Chunk) -> None:
        """Note that a chunk is stored."""
        self.position = chunk.next_seq
        if "spans" in chunk.tables:
            self.sums.add(chunk.tables["spans"])

    def beats(self) -> dict[Owner, list[dict[str, int]]]:
        """The current step of each rank, as its state page shows it."""
        due, at_ns = self.due(), time.time_ns()
        row = {
            "beat_ns": at_ns, "step": due // SPANS_A_STEP, "stage": int(Stage.FORWARD_COMPUTE), "alive": 1, "ended": 0,
            "recorded": due + due // SPANS_A_STEP * len(METRICS), "dropped": 0,
        }  # fmt: skip
        ranks = range(self._first_rank, self._first_rank + RANKS_A_HOST)
        return {self._lead.owner: [{"rank": rank, "at_ns": next_stamp_ns(), **row} for rank in ranks]}

    def spans(self, first: int, end: int) -> pa.Table:
        """Spans ``first`` to ``end`` of each rank, one rank after another."""
        step, span = np.divmod(np.arange(first, end), SPANS_A_STEP)
        ranks = np.arange(RANKS_A_HOST)[:, None]
        at = self._shape, step % STEPS_A_SHAPE, ranks, span
        begins_ns = self._plan.first_ns + step * self._plan.period_ns
        rank = np.broadcast_to(self._first_rank + ranks, (RANKS_A_HOST, len(step)))
        of_step = {name: values[span] for name, values in self._shapes.columns.items()}
        peer = np.where(of_step["peer"] >= 0, (rank + RANKS_A_HOST) % self._plan.topology.world_size, -1)
        columns = of_step | {
            "rank": rank,
            "seq": step * SEQS_A_STEP + span,
            "step": step,
            "peer": peer,
            "op_seq": of_step["op_seq"] + (of_step["op_seq"] > 0) * step * self._shapes.meets_a_step,
            "start_ns": begins_ns + self._shapes.start_ns[at],
            "duration_ns": self._shapes.duration_ns[at],
        }
        return _table(SPANS, columns, rank.shape)

    def _samples(self, first: int, end: int) -> pa.Table:
        """The metrics of each step that ends between these spans."""
        steps = np.repeat(np.arange(first // SPANS_A_STEP, end // SPANS_A_STEP), len(METRICS))
        shape = RANKS_A_HOST, len(steps)
        which = np.tile(np.arange(len(METRICS)), len(steps) // len(METRICS))
        columns = {
            "rank": self._first_rank + np.arange(RANKS_A_HOST)[:, None],
            "seq": steps * SEQS_A_STEP + SPANS_A_STEP + which,
            "step": steps,
            "at_ns": self._plan.first_ns + (steps + 1) * self._plan.period_ns,
            "metric": np.array(METRICS, object)[which],
            "value": np.where(which == 0, 2.0 + 8.0 / (1 + steps), 410_000.0),
        }
        return _table(SAMPLES, columns, shape)

    def _marks(self, steps: Ints) -> pa.Table:
        """A log line of each rank in each of ``steps``."""
        ranks = range(self._first_rank, self._first_rank + RANKS_A_HOST)
        columns = {
            "rank": np.array(ranks)[:, None],
            "seq": steps * SEQS_A_STEP + SPANS_A_STEP + len(METRICS),
            "step": steps,
            "at_ns": self._plan.first_ns + (steps + 1) * self._plan.period_ns,
            "name": np.full(len(steps), "log", object),
            "text": np.array([[LOG_LINE.format(step=step, rank=rank) for step in steps] for rank in ranks], object),
        }
        return _table(MARKS, columns, (RANKS_A_HOST, len(steps)))


def _table(schema: pa.Schema, columns: dict[str, npt.NDArray[np.generic]], shape: tuple[int, ...]) -> pa.Table:
    """Columns that can be broadcast to ``shape``, row by row."""
    arrays = []
    for field in schema:
        flat = np.ascontiguousarray(np.broadcast_to(columns[field.name], shape)).ravel()
        arrays.append(pa.array(flat if flat.dtype == object else flat.astype(field.type.to_pandas_dtype()), field.type))
    return pa.Table.from_arrays(arrays, schema=schema)


class MadeTail:
    """The part of a ``RankTail`` that ships records."""

    def __init__(self, identity: RankIdentity, host: MadeHost) -> None:
        self.identity = identity
        self._host = host

    def correct_clock(self, now_ns: int) -> None:
        """It is correct."""

    def shipped(self, chunk: Chunk) -> None:
        self._host.stored(chunk)
