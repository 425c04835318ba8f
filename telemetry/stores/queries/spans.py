"""Queries of single spans: for a timeline, for detectors, and with OpenTelemetry ids.

The ids are those of the view ``otel_traces`` (``schema/views.sql``). A trace is a step of an attempt:

trace of step 7      step, rank 0 [ forward-compute  forward-compute  optimizer ... ]
                     step, rank 1 [ forward-compute  ...                            ]

The ids depend only on run, attempt, step, rank and number, so a repeated export has the same ids.
"""

from dataclasses import dataclass
from typing import Literal, get_args

from telemetry.stages import Stage
from telemetry.stores.interface import OF_ATTEMPT, Fields, among
from telemetry.stores.queries.windows import IN_WINDOW
from telemetry.tables import SPANS

Detail = Literal["steps", "stages", "operations"]
"""``steps``: one span per rank and step. ``stages``: also spans without a microbatch. ``operations``: all spans."""

_STEP = int(Stage.STEP)
_OF_DETAIL = {
    "steps": f"AND stage = {_STEP}",
    "stages": f"AND (stage = {_STEP} OR microbatch < 0)",
    "operations": "",
}


def _hash(*parts: str) -> str:
    """64 bits in 16 hexadecimal digits. ``hex`` alone drops leading zeros."""
    return f"substring(concat('0000000000000000', lower(hex(sipHash64({', '.join(parts)})))), -16)"


_OF_STEP = ("run_id", "attempt", "step")
_TRACE_ID = f"concat({_hash(repr('trace'), *_OF_STEP)}, {_hash(repr('trace, on'), *_OF_STEP)})"
_STEP_ID = _hash("'step'", *_OF_STEP, "rank")
_SPAN_ID = _hash("'span'", "run_id", "attempt", "rank", "seq")


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSpans(Fields):
    """Spans of a window of steps, with their ids in a trace.

    Columns: trace_id (32 hexadecimal digits), span_id, parent_id (16, or empty), step, rank, stage, stream, microbatch,
    chunk, peer, start_ns, duration_ns, size_bytes, clock; ordered by step, rank, start_ns, seq.
    """

    run_id: str
    attempt: int
    first_step: int
    last_step: int
    detail: Detail

    def __post_init__(self) -> None:
        assert self.detail in get_args(Detail), self.detail

    def sql(self) -> str:
        return f"""
        SELECT {_TRACE_ID} AS trace_id, if(stage = {_STEP}, {_STEP_ID}, {_SPAN_ID}) AS span_id,
            if(stage = {_STEP}, '', {_STEP_ID}) AS parent_id,
            step, rank, stage, stream, microbatch, chunk, peer, start_ns, duration_ns, size_bytes, clock
        FROM spans
        WHERE {OF_ATTEMPT} AND step >= %(first_step)s AND step <= %(last_step)s {_OF_DETAIL[self.detail]}
        ORDER BY step, rank, start_ns, seq
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Spans(Fields):
    """Spans of a window of steps, ordered by rank, start_ns, seq. Columns: those of ``telemetry.tables.SPANS``."""

    run_id: str
    attempt: int
    first_step: int
    last_step: int
    ranks: tuple[int, ...] = ()
    """If empty, all are returned."""
    stages: tuple[int, ...] = ()
    """Codes of stages. If empty, all are returned."""
    limit: int = 1_000_000
    longest: int = 0
    """Limit for each rank and stream: the longest spans are kept. 0 means no limit. ``Lanes`` counts all spans."""

    def sql(self) -> str:
        names = ", ".join(SPANS.names)
        chosen = f"{IN_WINDOW}{among('rank', 'ranks', self.ranks)}{among('stage', 'stages', self.stages)}"
        rows = f"""(
            SELECT {names} FROM spans WHERE {chosen}
            ORDER BY rank, stream, duration_ns DESC, seq LIMIT %(longest)s BY rank, stream
        )"""
        return f"""
        SELECT {names} FROM {rows if self.longest else f"spans WHERE {chosen}"}
        ORDER BY rank, start_ns, seq LIMIT %(limit)s
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Lanes(Fields):
    """Number of spans in each lane of a timeline, also of spans that a limit hides.

    Columns: rank, stream, spans (count), busy_ns (sum of durations); ordered by rank, stream.
    """

    run_id: str
    attempt: int
    first_step: int
    last_step: int
    ranks: tuple[int, ...] = ()
    """If empty, all are returned."""

    def sql(self) -> str:
        return f"""
        SELECT rank, stream, toUInt32(count()) AS spans, sum(duration_ns) AS busy_ns
        FROM spans WHERE {IN_WINDOW}{among("rank", "ranks", self.ranks)}
        GROUP BY rank, stream ORDER BY rank, stream
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationColumns(Fields):
    """All operations of some stages in a window of steps, in the order of the table, so that no sort is needed.

    Columns: stage, step, rank, chunk, microbatch, peer, start_ns, duration_ns, cpu_ns, with ``sizes`` also size_bytes;
    ordered by stage, step, rank, start_ns, seq.
    """

    run_id: str
    attempt: int
    first_step: int
    last_step: int
    stages: tuple[int, ...] = ()
    """Codes of stages. If empty, all are returned."""
    ranks: tuple[int, ...] = ()
    """If empty, all are returned."""
    sizes: bool = False

    def sql(self) -> str:
        size = ", size_bytes" if self.sizes else ""
        return f"""
        SELECT stage, step, rank, chunk, microbatch, peer, start_ns, duration_ns, cpu_ns{size}
        FROM spans WHERE {IN_WINDOW}{among("stage", "stages", self.stages)}{among("rank", "ranks", self.ranks)}
        ORDER BY stage, step, rank, start_ns, seq
        """
