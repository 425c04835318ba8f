"""Spans with the ids of the view ``otel_traces`` (``schema/views.sql``): a trace is a step of an attempt.

trace of step 7      step, rank 0 [ forward-compute  forward-compute  optimizer ... ]
                     step, rank 1 [ forward-compute  ...                            ]

The ids depend only on run, attempt, step, rank and number, so a repeated export has the same ids.
"""

from dataclasses import dataclass
from typing import Literal, get_args

from telemetry.stages import Stage
from telemetry.stores.interface import OF_ATTEMPT, Fields

Detail = Literal["steps", "stages", "operations"]
"""``steps``: one span a rank and step; ``stages``: and what belongs to no microbatch; ``operations``: all there is."""

_STEP = int(Stage.STEP)
_OF_DETAIL = {
    "steps": f"AND stage = {_STEP}",
    "stages": f"AND (stage = {_STEP} OR microbatch < 0)",
    "operations": "",
}


def _hash(*parts: str) -> str:
    """64 bits in 16 hexadecimal digits: ``hex`` alone leaves leading zeros out."""
    return f"substring(concat('0000000000000000', lower(hex(sipHash64({', '.join(parts)})))), -16)"


_OF_STEP = ("run_id", "attempt", "step")
_TRACE_ID = f"concat({_hash(repr('trace'), *_OF_STEP)}, {_hash(repr('trace, on'), *_OF_STEP)})"
_STEP_ID = _hash("'step'", *_OF_STEP, "rank")
_SPAN_ID = _hash("'span'", "run_id", "attempt", "rank", "seq")


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSpans(Fields):
    """Spans of a window of steps with the ids they have as a trace.

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
