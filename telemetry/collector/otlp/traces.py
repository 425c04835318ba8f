"""Converts OTLP spans to the columns of ``otel_spans``, column by column for speed."""

from collections.abc import Iterable, Sequence

import pyarrow as pa
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from telemetry.collector.otlp.scopes import LAST_NS, Decoded, Records, lists, maps, moments, scopes_of

TABLE = "otel_spans"
TRACE_ID_BYTES, SPAN_ID_BYTES = 16, 8
KINDS = ("Unspecified", "Internal", "Server", "Client", "Producer", "Consumer")
STATUSES = ("Unset", "Ok", "Error")
_SCOPE_COLUMNS = ("ServiceName", "ResourceAttributes", "ScopeName", "ScopeVersion")
_NO_TRACE, _NO_SPAN = bytes(TRACE_ID_BYTES), bytes(SPAN_ID_BYTES)


def decode_traces(request: ExportTraceServiceRequest) -> Decoded:
    """A request as rows of ``otel_spans``. Spans without ids of their own, or out of all time, are rejected."""
    found: Records[Span] = Records(fault=_fault, num_parts=_num_parts)
    for resource in request.resource_spans:
        for scope, spans in scopes_of(resource, resource.scope_spans):
            found.add(scope, spans.spans)
    tables = {TABLE: _table(found)} if found.records else {}
    return Decoded(tables=tables, rejected=found.rejected, reason=found.reason)


def _fault(span: Span) -> str:
    trace_id, span_id = span.trace_id, span.span_id
    if len(trace_id) != TRACE_ID_BYTES or trace_id == _NO_TRACE:
        return "a span without a valid trace id"
    if len(span_id) != SPAN_ID_BYTES or span_id == _NO_SPAN:
        return "a span without a valid span id"
    if span.start_time_unix_nano > LAST_NS or span.end_time_unix_nano > LAST_NS:
        return "a span beyond the year 2262"
    return ""


def _num_parts(span: Span) -> int:
    return len(span.attributes) + len(span.events) + len(span.links)


def _table(found: Records[Span]) -> pa.Table:
    spans = found.records
    return pa.table(
        {
            "Timestamp": moments(span.start_time_unix_nano for span in spans),
            "TraceId": _texts([span.trace_id.hex() for span in spans]),
            "SpanId": _texts([span.span_id.hex() for span in spans]),
            "ParentSpanId": _texts([span.parent_span_id.hex() for span in spans]),
            "TraceState": _texts([span.trace_state for span in spans]),
            "SpanName": _texts([span.name for span in spans]),
            "SpanKind": _texts([_named(KINDS, span.kind) for span in spans]),
            **found.scope_columns(_SCOPE_COLUMNS),
            "SpanAttributes": maps(span.attributes for span in spans),
            "Duration": pa.array([_duration_ns(span) for span in spans], pa.uint64()),
            "StatusCode": _texts([_named(STATUSES, span.status.code) for span in spans]),
            "StatusMessage": _texts([span.status.message for span in spans]),
            **_events([span.events for span in spans]),
            **_links([span.links for span in spans]),
        }
    )


def _duration_ns(span: Span) -> int:
    """An end that is missing, or before the start as clocks jump, counts as none."""
    return max(0, span.end_time_unix_nano - span.start_time_unix_nano)


def _events(events_of_each: Sequence[Sequence[Span.Event]]) -> dict[str, pa.Array]:
    lengths = [len(events) for events in events_of_each]
    flat = [event for events in events_of_each for event in events]
    return {
        "Events.Timestamp": lists(lengths, moments(min(event.time_unix_nano, LAST_NS) for event in flat)),
        "Events.Name": lists(lengths, _texts([event.name for event in flat])),
        "Events.Attributes": lists(lengths, maps(event.attributes for event in flat)),
    }


def _links(links_of_each: Sequence[Sequence[Span.Link]]) -> dict[str, pa.Array]:
    lengths = [len(links) for links in links_of_each]
    flat = [link for links in links_of_each for link in links]
    return {
        "Links.TraceId": lists(lengths, _texts([link.trace_id.hex() for link in flat])),
        "Links.SpanId": lists(lengths, _texts([link.span_id.hex() for link in flat])),
        "Links.TraceState": lists(lengths, _texts([link.trace_state for link in flat])),
        "Links.Attributes": lists(lengths, maps(link.attributes for link in flat)),
    }


def _named(names: tuple[str, ...], code: int) -> str:
    """The name of a code; of one that is not known yet, that of 0."""
    return names[code] if 0 <= code < len(names) else names[0]


def _texts(values: Iterable[str]) -> pa.Array:
    return pa.array(values, pa.string())
