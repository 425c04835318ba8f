"""Converts OTLP spans and log records to the columns of ``otel_spans`` and ``otel_logs``, one column at a time."""

from collections.abc import Iterable, Sequence

import pyarrow as pa
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from telemetry.collector.otlp.scopes import LAST_NS, Decoded, Records, as_text, lists, maps, moments, scopes_of

SPAN_TABLE, LOG_TABLE = "otel_spans", "otel_logs"
TRACE_ID_BYTES, SPAN_ID_BYTES = 16, 8
KINDS = ("Unspecified", "Internal", "Server", "Client", "Producer", "Consumer")
STATUSES = ("Unset", "Ok", "Error")
_SPAN_SCOPE_COLUMNS = ("ServiceName", "ResourceAttributes", "ScopeName", "ScopeVersion")
MAX_SEVERITY = 24
_TRACE_FLAGS = 0xFF
_LOG_SCOPE_COLUMNS = (
    *("ServiceName", "ResourceSchemaUrl", "ResourceAttributes"),
    *("ScopeSchemaUrl", "ScopeName", "ScopeVersion", "ScopeAttributes"),
)


def decode_traces(request: ExportTraceServiceRequest) -> Decoded:
    """A request as rows of ``otel_spans``. Spans with an invalid id or time are rejected."""
    found: Records[Span] = Records(
        fault=_span_fault, num_parts=lambda span: len(span.attributes) + len(span.events) + len(span.links)
    )
    for resource in request.resource_spans:
        for scope, spans in scopes_of(resource, resource.scope_spans):
            found.add(scope, spans.spans)
    tables = {SPAN_TABLE: _span_table(found)} if found.records else {}
    return Decoded(tables=tables, rejected=found.rejected, reason=found.reason)


def _span_fault(span: Span) -> str:
    if not _id(span.trace_id, TRACE_ID_BYTES):
        return "a span without a valid trace id"
    if not _id(span.span_id, SPAN_ID_BYTES):
        return "a span without a valid span id"
    if span.start_time_unix_nano > LAST_NS or span.end_time_unix_nano > LAST_NS:
        return "a span beyond the year 2262"
    return ""


def _span_table(found: Records[Span]) -> pa.Table:
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
            **found.scope_columns(_SPAN_SCOPE_COLUMNS),
            "SpanAttributes": maps(span.attributes for span in spans),
            # A missing end, or an end before the start because a clock jumped, counts as no duration.
            "Duration": pa.array(
                [max(0, span.end_time_unix_nano - span.start_time_unix_nano) for span in spans], pa.uint64()
            ),
            "StatusCode": _texts([_named(STATUSES, span.status.code) for span in spans]),
            "StatusMessage": _texts([span.status.message for span in spans]),
            **_events([span.events for span in spans]),
            **_links([span.links for span in spans]),
        }
    )


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
    """The name of a code; the name of 0 for an unknown code."""
    return names[code] if 0 <= code < len(names) else names[0]


def _texts(values: Iterable[str]) -> pa.Array:
    return pa.array(list(values), pa.string())


def decode_logs(request: ExportLogsServiceRequest) -> Decoded:
    """A request as rows of ``otel_logs``. Invalid ids are left empty, as the protocol requires. Their records stay."""
    found: Records[LogRecord] = Records(fault=_log_fault, num_parts=lambda record: len(record.attributes))
    for resource in request.resource_logs:
        for scope, logs in scopes_of(resource, resource.scope_logs):
            found.add(scope, logs.log_records)
    tables = {LOG_TABLE: _log_table(found)} if found.records else {}
    return Decoded(tables=tables, rejected=found.rejected, reason=found.reason)


def _log_fault(record: LogRecord) -> str:
    return "a log record beyond the year 2262" if _at_ns(record) > LAST_NS else ""


def _at_ns(record: LogRecord) -> int:
    """The time of the event. If that is unknown, the time at which it was observed."""
    return record.time_unix_nano or record.observed_time_unix_nano


def _log_table(found: Records[LogRecord]) -> pa.Table:
    records = found.records
    return pa.table(
        {
            "Timestamp": moments(map(_at_ns, records)),
            "TraceId": _texts([_id(record.trace_id, TRACE_ID_BYTES) for record in records]),
            "SpanId": _texts([_id(record.span_id, SPAN_ID_BYTES) for record in records]),
            "TraceFlags": pa.array([record.flags & _TRACE_FLAGS for record in records], pa.uint8()),
            "SeverityText": _texts([record.severity_text for record in records]),
            "SeverityNumber": pa.array(
                [number if 0 <= (number := record.severity_number) <= MAX_SEVERITY else 0 for record in records],
                pa.uint8(),
            ),
            **found.scope_columns(_LOG_SCOPE_COLUMNS),
            "Body": _texts([as_text(record.body) for record in records]),
            "LogAttributes": maps(record.attributes for record in records),
            "EventName": _texts([record.event_name for record in records]),
        }
    )


def _id(number: bytes, size_bytes: int) -> str:
    return number.hex() if len(number) == size_bytes and any(number) else ""
