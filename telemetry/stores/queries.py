"""Every question rankscope asks a store: typed, parameterised, answered as columns.

A query is a frozen dataclass: its fields are the parameters, its docstring names the columns of the answer.
SQL keeps to what ClickHouse 18.16 and today's engine both know.
"""

from dataclasses import dataclass
from typing import Protocol

from telemetry.stores.interface import Parameter


class Query(Protocol):
    """A question with its parameters."""

    def sql(self) -> str: ...

    def parameters(self) -> dict[str, Parameter]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """All runs, newest first.

    Columns: run_id, attempt, started_ns, last_ns, num_ranks, first_step, last_step, meta.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """The ranks of an attempt.

    Columns: rank, host, local_rank, pid, dp_size, pp_size, tp_size, started_ns, meta; ordered by rank.
    """

    run_id: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Wall time of each step: from its first start to its last end over the ranks.

    Columns: step, start_ns, duration_ns (median over ranks of the step span), num_ranks; ordered by step.
    """

    run_id: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Spans:
    """Spans of a window of steps, ordered by rank, start_ns. Columns: those of ``telemetry.tables.SPANS``."""

    run_id: str
    attempt: int
    first_step: int
    last_step: int
    ranks: tuple[int, ...] = ()
    """Empty: all."""
    stages: tuple[int, ...] = ()
    """Codes; empty: all."""
    limit: int = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTotals:
    """Time of each rank in each stage and step, chunk by chunk: what the heat map and the detectors read.

    Columns: step, rank, stage, chunk, spans (count), duration_ns, cpu_ns (sums; -1 where a span has none), ordered by step, rank.
    """

    run_id: str
    attempt: int
    first_step: int
    last_step: int
    stages: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Values of metrics by step, the highest rank's where several report.

    Columns: step, at_ns, metric, value, rank; ordered by metric, step.
    """

    run_id: str
    attempt: int
    metrics: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """Marks of an attempt in time order. Columns: rank, step, at_ns, name, text."""

    run_id: str
    attempt: int
    limit: int = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeats:
    """Newest heartbeat of each rank. Columns: those of ``telemetry.tables.HEARTBEATS``."""

    run_id: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HighWater:
    """How far each rank is stored: the ledger of exactly-once.

    Columns: rank, next_seq (one past the largest stored seq).
    """

    table: str
    run_id: str
    attempt: int
