"""Log records of others, from protobuf to the columns of ``otel_logs``."""

import pyarrow as pa
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from telemetry.collector.otlp.scopes import LAST_NS, Decoded, Records, moments, scopes_of
from telemetry.collector.otlp.traces import SPAN_ID_BYTES, TRACE_ID_BYTES
from telemetry.collector.otlp.values import as_text, maps

TABLE = "otel_logs"
MAX_SEVERITY = 24
_TRACE_FLAGS = 0xFF
_SCOPE_COLUMNS = (
    "ServiceName",
    "ResourceSchemaUrl",
    "ResourceAttributes",
    "ScopeSchemaUrl",
    "ScopeName",
    "ScopeVersion",
    "ScopeAttributes",
)


def decode_logs(request: ExportLogsServiceRequest) -> Decoded:
    """A request as rows of ``otel_logs``. Ids that are none are left out, as the protocol asks; their records stay."""
    found: Records[LogRecord] = Records(fault=_fault, num_parts=_num_parts)
    for resource in request.resource_logs:
        for scope, logs in scopes_of(resource, resource.scope_logs):
            found.add(scope, logs.log_records)
    tables = {TABLE: _table(found)} if found.records else {}
    return Decoded(tables=tables, rejected=found.rejected, reason=found.reason)


def _fault(record: LogRecord) -> str:
    return "a log record beyond the year 2262" if _at_ns(record) > LAST_NS else ""


def _num_parts(record: LogRecord) -> int:
    return len(record.attributes)


def _at_ns(record: LogRecord) -> int:
    """When it happened; where that is not known, when it was seen."""
    return record.time_unix_nano or record.observed_time_unix_nano


def _table(found: Records[LogRecord]) -> pa.Table:
    records = found.records
    return pa.table(
        {
            "Timestamp": moments(map(_at_ns, records)),
            "TraceId": pa.array([_id(record.trace_id, TRACE_ID_BYTES) for record in records], pa.string()),
            "SpanId": pa.array([_id(record.span_id, SPAN_ID_BYTES) for record in records], pa.string()),
            "TraceFlags": pa.array([record.flags & _TRACE_FLAGS for record in records], pa.uint8()),
            "SeverityText": pa.array([record.severity_text for record in records], pa.string()),
            "SeverityNumber": pa.array([_severity(record.severity_number) for record in records], pa.uint8()),
            **found.scope_columns(_SCOPE_COLUMNS),
            "Body": pa.array([as_text(record.body) for record in records], pa.string()),
            "LogAttributes": maps(record.attributes for record in records),
            "EventName": pa.array([record.event_name for record in records], pa.string()),
        }
    )


def _id(number: bytes, size_bytes: int) -> str:
    return number.hex() if len(number) == size_bytes and any(number) else ""


def _severity(number: int) -> int:
    return number if 0 <= number <= MAX_SEVERITY else 0
