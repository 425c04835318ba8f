"""OTLP/HTTP: stores what an OpenTelemetry SDK or collector sends.

    POST /v1/traces    ->  otel_spans (and the view otel_traces)
    POST /v1/metrics   ->  otel_metrics_gauge, _sum, _histogram, _exponential_histogram, _summary
    POST /v1/logs      ->  otel_logs

Bodies are protobuf or JSON, with gzip, deflate or no compression. The answer has the format of the request, and is sent
once the rows are stored. Invalid records are counted in its ``partial_success``; the others are stored. Errors are a
``google.rpc.Status``:

    400         not a valid message                  501         the server is too old for these tables
    413         too large                            429, 503    retry later (Retry-After)
    415         wrong content type

The module also converts log records to the columns of ``otel_logs``.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, FastAPI, Request, Response
from google.protobuf.message import Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from telemetry.collector.answers import RETRY_AFTER
from telemetry.collector.counters import Counters
from telemetry.collector.group_queue import QueueFullError
from telemetry.collector.otlp.message import (
    PROTOBUF_TYPE,
    Encoding,
    TooBigError,
    UnknownEncodingError,
    decode,
    encode,
    encoding_of,
    refusal,
)
from telemetry.collector.otlp.metrics import decode_metrics
from telemetry.collector.otlp.scopes import LAST_NS, Decoded, Records, as_text, maps, moments, scopes_of
from telemetry.collector.otlp.traces import SPAN_ID_BYTES, TRACE_ID_BYTES, decode_traces
from telemetry.collector.otlp.writer import OtlpWriter
from telemetry.collector.settings import CollectorSettings
from telemetry.errors import UnreachableError, UsageError
from telemetry.stores.cluster import is_modern, parse_version
from telemetry.stores.interface import Store

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


MAX_BODY_BYTES = 8 * 2**20
"""Of a request, packed and unpacked: what is parsed of a hostile one takes a hundred times as much."""
DECODERS = 1
"""Requests that are parsed at the same time: bounds that memory, and more than one thread would gain nothing."""


class OldServerError(Exception):
    """The server knows no Map and no DateTime64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """One of the three kinds of telemetry: its messages, and how they become rows."""

    request: type[Message]
    response: type[Message]
    rows: Callable[[Any], Decoded]
    rejected_field: str
    """Where the answer counts what was not understood."""


SIGNALS = {
    "traces": Signal(
        request=ExportTraceServiceRequest,
        response=ExportTraceServiceResponse,
        rows=decode_traces,
        rejected_field="rejected_spans",
    ),
    "metrics": Signal(
        request=ExportMetricsServiceRequest,
        response=ExportMetricsServiceResponse,
        rows=decode_metrics,
        rejected_field="rejected_data_points",
    ),
    "logs": Signal(
        request=ExportLogsServiceRequest,
        response=ExportLogsServiceResponse,
        rows=decode_logs,
        rejected_field="rejected_log_records",
    ),
}


def make_otlp_router(store: Store, counters: Counters, settings: CollectorSettings) -> APIRouter:
    """The three routes over a store. What they write is stored before the server has ended."""
    writer = OtlpWriter(store, counters, queue_bytes=settings.queue_bytes, linger_s=settings.linger_s)
    receiver = _Receiver(store, writer, limit_bytes=min(settings.max_body_bytes, MAX_BODY_BYTES))

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        writer.start()
        try:
            yield
        finally:
            writer.close()

    router = APIRouter(lifespan=lifespan)
    for name in SIGNALS:
        router.add_api_route(f"/v1/{name}", _route(receiver, name, counters), methods=["POST"])
    return router


def _route(receiver: "_Receiver", name: str, counters: Counters) -> Callable[[Request], Any]:
    signal = SIGNALS[name]

    async def take(request: Request) -> Response:
        encoding = Encoding(content_type=PROTOBUF_TYPE)
        try:
            encoding = _encoding(request)
            decoded = await receiver.take(signal, request, encoding)
        except Exception as error:
            answer = _refused(error, encoding)
            counters.rejected(answer.status_code)
            return answer
        counters.records_rejected(name, decoded.rejected)
        return Response(encode(_answer(signal, decoded), encoding), media_type=encoding.content_type)

    return take


class _Receiver:
    """From a request's body to rows that are stored."""

    def __init__(self, store: Store, writer: OtlpWriter, *, limit_bytes: int) -> None:
        self._store = store
        self._writer = writer
        self._limit_bytes = limit_bytes
        self._decoders = CapacityLimiter(DECODERS)
        self._modern = False

    async def take(self, signal: Signal, request: Request, encoding: Encoding) -> Decoded:
        body = await self._read(request)
        decoded = await to_thread.run_sync(self._decode, signal, body, encoding, limiter=self._decoders)
        if decoded.tables:
            await asyncio.wrap_future(self._writer.submit(decoded.tables))
        return decoded

    async def _read(self, request: Request) -> bytes:
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > self._limit_bytes:
                raise TooBigError(f"more than {self._limit_bytes} bytes")
        return bytes(body)

    def _decode(self, signal: Signal, body: bytes, encoding: Encoding) -> Decoded:
        self._refuse_old_server()
        return signal.rows(decode(body, encoding, signal.request, limit_bytes=self._limit_bytes))

    def _refuse_old_server(self) -> None:
        if self._modern:
            return
        version = self._store.query("SELECT version() AS version")["version"][0].as_py()
        if not is_modern(parse_version(version)):
            raise OldServerError(f"the store is ClickHouse {version}: the OpenTelemetry tables need 22 or newer")
        self._modern = True


def _encoding(request: Request) -> Encoding:
    return encoding_of(request.headers.get("content-type", ""), request.headers.get("content-encoding", ""))


def _answer(signal: Signal, decoded: Decoded) -> Message:
    if not decoded.rejected:
        return signal.response()
    return signal.response(partial_success={signal.rejected_field: decoded.rejected, "error_message": decoded.reason})


def _refused(error: Exception, encoding: Encoding) -> Response:
    status, words = _status_and_words(error)
    headers = {"Retry-After": RETRY_AFTER[status]} if status in RETRY_AFTER else {}
    return Response(
        refusal(status, words, encoding), status_code=status, media_type=encoding.content_type, headers=headers
    )


def _status_and_words(error: Exception) -> tuple[int, str]:
    match error:
        case UnreachableError():
            return 503, str(error)
        case UsageError():
            return 400, str(error)
        case UnknownEncodingError():
            return 415, str(error)
        case TooBigError():
            return 413, f"{error}; send fewer records at a time"
        case OldServerError():
            return 501, str(error)
        case QueueFullError():
            return 429, "too many rows wait to be stored; retry after Retry-After seconds"
        case _:
            raise error
