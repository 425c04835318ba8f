"""The records that pages and figures are drawn from, independent of the store."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from diagnose.model.operations import SPAN_COLUMNS as SPAN_COLUMNS
from diagnose.model.operations import SpanColumns as SpanColumns
from diagnose.model.operations import step_time_ns
from diagnose.model.run_state import Heard, RunState
from telemetry.stages import Stage
from telemetry.topology import Topology

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """A run's row in the list. Times are wall clock, nanoseconds since the epoch."""

    run_id: str
    attempt: int
    started_ns: int
    last_ns: int
    num_ranks: int
    first_step: int
    last_step: int
    meta: Mapping[str, str]
    topology: Topology | None
    """None until a rank has reported."""
    heard: Heard
    """Whether it goes on, and when it was last heard of."""

    @property
    def state(self) -> RunState:
        """What is known about its life."""
        return self.heard.state

    @property
    def is_over(self) -> bool:
        """Whether it is spoken of in the past: it ended, or nobody watches it. Of a run that died, ranks may wait."""
        return self.heard.has_ended or self.state is RunState.ENDED


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The grid of ranks and where each lives."""

    topology: Topology
    hosts: tuple[str, ...]
    """Host of each rank; empty text where a rank never reported."""
    local_ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """One attempt: its summary, its grid, where each rank lives."""

    summary: RunSummary
    topology: Topology
    hosts: tuple[str, ...]
    local_ranks: tuple[int, ...]
    steps: "StepTimes"
    stages: tuple[Stage, ...]
    """Those that occur, in the vocabulary's order."""
    num_spans: int
    """Of all stored steps, ranks and stages."""

    def describe(self, rank: int) -> str:
        """``rank 5 (host gpu-03, dp1 pp0 tp1)``."""
        return f"rank {rank} (host {self.hosts[rank] or 'unknown'}, {self.topology.describe(rank)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """The step time of each step (``diagnose/model/operations.py``), ascending by step."""

    step: Ints
    start_ns: Ints
    duration_ns: Floats
    num_ranks: Ints
    num_spans: Ints

    def mean_ns(self, first: int, end: int) -> float:
        """The step time over the stored steps from ``first`` to before ``end``; NaN where there is none."""
        rows = slice(*np.searchsorted(self.step, (first, end)))
        return step_time_ns(self.duration_ns[rows], self.num_spans[rows])

    def complete(self, world_size: int) -> Ints:
        """Steps that every rank has finished; where there is none (a rank is missing), all of them."""
        whole = self.step[self.num_ranks >= world_size]
        return whole if len(whole) else self.step


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSpans:
    """The steps of one rank, as it stamped them; arrays of one length."""

    rank: int
    step: Ints
    start_ns: Ints
    duration_ns: Ints


class EvidenceSeen(NamedTuple):
    """Evidence of a stall that is stored: enough to tell whether there is more than before."""

    num_rows: int
    newest_ns: int
    stamps: int = 0
    """See :class:`telemetry.stores.queries.EvidenceCount`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A metric by step."""

    metric: str
    step: Ints
    value: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTimes:
    """Time of each rank in one stage, step by step."""

    stage: Stage
    steps: Ints
    ns: Floats
    """Shape [steps, ranks]; NaN where a rank has no span of the stage."""
    ratio: Floats
    """``ns`` over the median of the peers (same pipeline stage), same shape."""
    step_ns: Floats
    """Step time of each of ``steps``; of a single row, that over them."""
    basis: str
    """What the time is, in words."""
    num_steps: int = 1
    """Above 1: there is one row, each rank's mean over so many steps, of which ``steps`` names the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledTimes:
    """A stage, rank by step, in no more cells than a screen shows apart: of each cell its worst rank.

    Arrays of shape [columns, rows] but for ``steps``.
    """

    steps: Ints
    """The first of each column."""
    steps_a_column: int
    ranks_a_row: int
    over_steps: str
    """What a column tells of several steps: their mean or their median."""
    ns: Floats
    ratio: Floats
    """Both NaN where nothing is known."""
    step_ns: Floats
    """Step time over the steps of each column, shape [columns]."""
    worst: Ints
    """The rank that they are of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankState:
    """What a rank last said of itself."""

    rank: int
    step: int
    stage: Stage | None
    alive: bool
    ended: bool
    dropped: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkRow:
    """Something that happened."""

    rank: int
    step: int
    at_ns: int
    name: str
    text: str
