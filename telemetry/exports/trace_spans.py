"""Spans of a run in the form of the OpenTelemetry SDK, with the ids of the view ``otel_traces``."""

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags

from telemetry.exports.resources import Attempt, of_rank, of_ranks
from telemetry.group_names import axes_of_peer, mask_of_peer
from telemetry.stages import STAGE_BY_CODE, SpanClock, Stream
from telemetry.stores.interface import Reader
from telemetry.stores.queries import TraceSpans
from telemetry.stores.queries.traces import Detail

SCOPE = InstrumentationScope("rankscope")
SPANS_AT_ONCE = 200_000
"""What one question should find, about."""
SPANS_OF_STEP = {"steps": 1, "stages": 16, "operations": 256}
"""Of one rank, about."""
_CLOCKS = {int(clock): clock.name.lower() for clock in SpanClock}
_NONE = -1
"""A microbatch or chunk that there is not."""


def trace_spans(
    reader: Reader, who: Attempt, *, first_step: int, last_step: int, detail: Detail
) -> Iterator[list[ReadableSpan]]:
    """The spans of a window of steps, some steps at a time."""
    resources = of_ranks(reader, who)
    steps_at_once = max(1, SPANS_AT_ONCE // (max(1, len(resources)) * SPANS_OF_STEP[detail]))
    for first in range(first_step, last_step + 1, steps_at_once):
        last = min(last_step, first + steps_at_once - 1)
        asked = TraceSpans(run_id=who.run_id, attempt=who.attempt, first_step=first, last_step=last, detail=detail)
        yield _readable(reader.read(asked), who, resources)


def _readable(rows: pa.Table, who: Attempt, resources: dict[int, Resource]) -> list[ReadableSpan]:
    """Rows of :class:`TraceSpans`. Ranks that ``resources`` lacks are added to it."""
    for rank in rows["rank"].unique().to_pylist():
        if rank not in resources:
            resources[rank] = of_rank(who, rank)
    return [_span(row, resources[row["rank"]]) for row in rows.to_pylist()]


def _span(row: Mapping[str, int | str], resource: Resource) -> ReadableSpan:
    start_ns = int(row["start_ns"])
    trace_id = int(str(row["trace_id"]), 16)
    stage = STAGE_BY_CODE.get(int(row["stage"]))
    return ReadableSpan(
        name=stage.label if stage else "unknown",
        context=_context(trace_id, str(row["span_id"])),
        parent=_context(trace_id, str(row["parent_id"])) if row["parent_id"] else None,
        resource=resource,
        attributes=_attributes(row),
        kind=SpanKind.INTERNAL,
        start_time=start_ns,
        end_time=start_ns + int(row["duration_ns"]),
        instrumentation_scope=SCOPE,
    )


def _context(trace_id: int, span_id: str) -> SpanContext:
    return SpanContext(trace_id, int(span_id, 16), is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def _attributes(row: Mapping[str, int | str]) -> dict[str, int | str]:
    attributes = {f"rankscope.{name}": row[name] for name in ("microbatch", "chunk") if row[name] != _NONE}
    if int(row["peer"]) >= 0:
        attributes["rankscope.peer"] = row["peer"]
    elif axes := axes_of_peer(int(row["peer"])):
        attributes["rankscope.group_axes"] = " ".join(axes)
    elif mask := mask_of_peer(int(row["peer"])):
        attributes["rankscope.group_mask"] = mask
    if row["clock"]:
        attributes["rankscope.clock"] = _CLOCKS.get(int(row["clock"]), "unknown")
    if row["size_bytes"]:
        attributes["rankscope.size_bytes"] = row["size_bytes"]
    return {"rankscope.step": row["step"], "rankscope.stream": Stream(int(row["stream"])).label, **attributes}


def batches(spans: Sequence[ReadableSpan], size: int) -> Iterator[Sequence[ReadableSpan]]:
    """``spans``, at most ``size`` at a time."""
    for first in range(0, len(spans), size):
        yield spans[first : first + size]
