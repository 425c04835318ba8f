"""The records that pages and figures are drawn from. They are independent of the store."""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, TypedDict

import numpy as np
import numpy.typing as npt

from diagnose.model.operations import SPAN_COLUMNS as SPAN_COLUMNS
from diagnose.model.operations import SpanColumns as SpanColumns
from diagnose.model.operations import step_time_ns
from diagnose.model.run_state import Heard, RunState
from telemetry.errors import UsageError
from telemetry.stages import Stage
from telemetry.topology import Topology

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class AttemptKey(TypedDict):
    """The arguments that most queries share."""

    run_id: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """One attempt of a run. Times are wall clock, nanoseconds since the epoch."""

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
    """The state of the run and the time of its last data."""

    @property
    def key(self) -> AttemptKey:
        return {"run_id": self.run_id, "attempt": self.attempt}

    @property
    def state(self) -> RunState:
        return self.heard.state

    @property
    def is_over(self) -> bool:
        """True if every rank ended, or if no agent watches the run. A run that died can still have waiting ranks."""
        return self.heard.has_ended or self.state is RunState.ENDED


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """One attempt: its summary, its topology, the host and local rank of each rank, and its steps."""

    summary: RunSummary
    topology: Topology
    hosts: tuple[str, ...]
    """Host of each rank. Empty for a rank that never reported."""
    local_ranks: tuple[int, ...]
    steps: "StepTimes"
    stages: tuple[Stage, ...]
    """The stages that were recorded, in the order of ``Stage``."""
    num_spans: int
    """Number of spans in all stored steps, on all ranks."""
    roles: tuple[str, ...] = ()
    """Role of each rank in a job with several roles. Empty if the job has one program."""

    def describe(self, rank: int) -> str:
        """A rank with its host and place, such as ``rank 5 (host gpu-03, dp1 pp0 tp1)``."""
        return f"rank {rank} (host {self.hosts[rank] or 'unknown'}, {self.place(rank)})"

    def place(self, rank: int) -> str:
        """The place of a rank: ``dp1 pp0 tp1``, or ``role actor, dp1 pp0 tp1`` in a job with several roles."""
        role = self.roles[rank] if self.roles else ""
        return f"role {role}, {self.topology.describe(rank)}" if role else self.topology.describe(rank)

    @property
    def hosts_and_roles(self) -> tuple[str, ...]:
        """The host of each rank, followed by its role in a job with several roles."""
        if not self.roles:
            return self.hosts
        pairs = zip(self.hosts, self.roles, strict=True)
        return tuple(f"{host or 'host unknown'}, role {role}" if role else host for host, role in pairs)

    @property
    def role_numbers(self) -> tuple[int, ...]:
        """A number for each rank, the same for ranks of one role. Empty in a job with one program."""
        names = list(dict.fromkeys(self.roles))
        return tuple(names.index(role) for role in self.roles)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """The step time of each step (``diagnose/model/operations.py``), ascending by step."""

    step: Ints
    start_ns: Ints
    duration_ns: Floats
    num_ranks: Ints
    num_spans: Ints

    def mean_ns(self, first: int, end: int) -> float:
        """The step time over the stored steps in ``[first, end)``. NaN without a stored step."""
        rows = slice(*np.searchsorted(self.step, (first, end)))
        return step_time_ns(self.duration_ns[rows], self.num_spans[rows])

    def complete(self, world_size: int) -> Ints:
        """Steps that every rank has completed. All steps if there is none, because a rank is missing."""
        whole = self.step[self.num_ranks >= world_size]
        return whole if len(whole) else self.step


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSpans:
    """The steps of one rank, on its own clock. Arrays of equal length."""

    rank: int
    step: Ints
    start_ns: Ints
    duration_ns: Ints


class StoredEvidence(NamedTuple):
    """Which evidence of a stall is stored. It changes when new evidence arrives."""

    num_rows: int
    newest_ns: int
    stamps: int = 0
    """See :class:`telemetry.stores.queries.EvidenceCount`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Values of a metric, in the order of attempts and steps. Arrays of equal length."""

    metric: str
    attempt: Ints
    step: Ints
    at_ns: Ints
    """Wall clock of the host that reported the value."""
    value: Floats

    def where(self, rows: npt.NDArray[np.bool_] | Ints | slice) -> "Series":
        """Some rows: a mask, their numbers, or a range."""
        return replace(
            self, attempt=self.attempt[rows], step=self.step[rows], at_ns=self.at_ns[rows], value=self.value[rows]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTimes:
    """Time of each rank in one stage, step by step."""

    stage: Stage
    steps: Ints
    ns: Floats
    """Shape [steps, ranks]. NaN if a rank has no span of the stage."""
    ratio: Floats
    """``ns`` divided by the median of the peers (same pipeline stage), same shape."""
    step_ns: Floats
    """Step time of each row."""
    basis: str
    """The kind of time, as text."""
    num_steps: int = 1
    """If greater than 1, there is a single row: the mean of each rank over ``num_steps`` steps, from ``steps[0]``
    on."""
    group_mask: int = 0
    """The axes of the groups whose members are compared (``Topology.mask``). 0 if ranks of the same pipeline stage
    are compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledTimes:
    """Time in a stage by step and rank, pooled to the resolution of a screen. Each cell has the values of its worst
    rank.

    Arrays have shape [columns, rows] unless noted.
    """

    ranks: Ints
    """The ranks of the rows, from the top, ``ranks_a_row`` in each row but the last."""

    steps: Ints
    """The first step of each column, shape [columns]."""
    steps_a_column: int
    ranks_a_row: int
    over_steps: str
    """How the steps of a column are combined: ``mean`` or ``median``."""
    ns: Floats
    ratio: Floats
    """NaN if unknown, like ``ns``."""
    step_ns: Floats
    """Step time over the steps of each column, shape [columns]."""
    worst: Ints
    """The rank of each cell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankState:
    """The last heartbeat of a rank."""

    rank: int
    step: int
    stage: Stage | None
    alive: bool
    ended: bool
    dropped: int
    at_ns: int = 0
    """When its agent read the state page, wall clock of the host."""
    beat_ns: int = 0
    """When the rank last wrote its state page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkRow:
    """A mark of a rank."""

    rank: int
    step: int
    at_ns: int
    name: str
    text: str


VARIABLE = "RANKSCOPE_GPU_HOUR_PRICE"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPrice:
    """The price of one GPU for one hour."""

    an_hour: float
    currency: str
    """Written after the number. Can be empty."""

    def of(self, gpu_hours: float) -> str:
        """The price of some GPU hours, such as ``1,234 EUR``."""
        cost = self.an_hour * gpu_hours
        number = f"{cost:,.0f}" if cost >= 100 else f"{cost:,.2f}"
        return f"{number} {self.currency}".rstrip()


def price_from_environment(environment: Mapping[str, str] = os.environ) -> GpuPrice | None:
    """The price in RANKSCOPE_GPU_HOUR_PRICE, such as ``2.10`` or ``2.10 EUR``. None if it is not set.

    Raises:
        UsageError: the value is not a price.
    """
    text = environment.get(VARIABLE, "").strip()
    if not text:
        return None
    number, _, currency = text.partition(" ")
    try:
        an_hour = float(number)
    except ValueError:
        an_hour = math.nan
    if not 0 <= an_hour < math.inf or len(currency) > 12:
        raise UsageError(f"{VARIABLE} is {text!r}", hint='a number from 0, optionally with a currency: "2.10 EUR"')
    return GpuPrice(an_hour=an_hour, currency=currency.strip())
