"""Spans and resources of a run in the form of the OpenTelemetry SDK, with the ids of the view ``otel_traces``.

A run is a service. Each rank of an attempt is an instance of it:

    service.name         the run                 } stable semantic conventions
    service.instance.id  a UUID of the rank      }
    rankscope.*          attributes without a stable name: attempt, rank, place in the grid, host

``OTEL_SERVICE_NAME`` and ``OTEL_RESOURCE_ATTRIBUTES`` override these.
"""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.semconv.attributes.service_attributes import SERVICE_NAME
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags

from telemetry.group_names import axes_of_peer, mask_of_peer
from telemetry.records import topology_in
from telemetry.stages import STAGE_BY_CODE, SpanClock, Stream
from telemetry.stores.interface import Reader
from telemetry.stores.queries import Ranks, TraceSpans
from telemetry.stores.queries.spans import Detail

SERVICE_INSTANCE_ID = "service.instance.id"
_INSTANCES = uuid.UUID("4d63009a-8d0f-11ee-aad7-4c796ed8e320")
"""The namespace of the semantic conventions for ids of instances that are computed from other attributes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """The attempt that is exported."""

    run_id: str
    attempt: int


def of_attempt(who: Attempt) -> Resource:
    """The resource of all ranks together."""
    return _resource(who, "attempt", {})


def of_ranks(reader: Reader, who: Attempt) -> dict[int, Resource]:
    """The resource of each stored rank."""
    return {
        row["rank"]: _resource(who, f"rank {row['rank']}", _attributes(row))
        for row in reader.read(Ranks(run_id=who.run_id, attempt=who.attempt)).to_pylist()
    }


def of_rank(who: Attempt, rank: int) -> Resource:
    """The resource of a rank of which only spans are stored."""
    return _resource(who, f"rank {rank}", {"rankscope.rank": rank})


def _attributes(row: Mapping[str, int | str]) -> dict[str, int | str]:
    topology = topology_in(row)
    rank = int(row["rank"])
    known = rank < topology.world_size
    place = topology.place(rank)._asdict() | topology.coordinates(rank) if known else {}
    return {
        "rankscope.rank": rank,
        "rankscope.local_rank": row["local_rank"],
        "rankscope.host.name": row["host"],
        "rankscope.mesh": str(topology),
        **{f"rankscope.{axis}": index for axis, index in place.items()},
    }


def _resource(who: Attempt, instance: str, more: Mapping[str, int | str]) -> Resource:
    named = Resource(
        {
            SERVICE_NAME: who.run_id,
            SERVICE_INSTANCE_ID: str(uuid.uuid5(_INSTANCES, f"{who.run_id}/{who.attempt}/{instance}")),
            "rankscope.run.id": who.run_id,
            "rankscope.attempt": who.attempt,
            **more,
        }
    )
    return named.merge(OTELResourceDetector().detect())


SCOPE = InstrumentationScope("rankscope")
SPANS_AT_ONCE = 200_000
"""Approximate number of spans for one query."""
SPANS_OF_STEP = {"steps": 1, "stages": 16, "operations": 256}
"""Detail -> approximate number of spans of a step on one rank."""
_CLOCKS = {int(clock): clock.name.lower() for clock in SpanClock}
_NONE = -1
"""The value of ``microbatch`` and ``chunk`` for a span that has none."""


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
    """The spans in rows of :class:`TraceSpans`. Ranks that are missing in ``resources`` are added to it."""
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
        attributes=_span_attributes(row),
        kind=SpanKind.INTERNAL,
        start_time=start_ns,
        end_time=start_ns + int(row["duration_ns"]),
        instrumentation_scope=SCOPE,
    )


def _context(trace_id: int, span_id: str) -> SpanContext:
    return SpanContext(trace_id, int(span_id, 16), is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def _span_attributes(row: Mapping[str, int | str]) -> dict[str, int | str]:
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
