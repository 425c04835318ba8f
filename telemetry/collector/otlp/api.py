"""OTLP/HTTP: stores what an OpenTelemetry SDK or collector sends.

    POST /v1/traces    ->  otel_spans (and the view otel_traces); spans of ranks also into spans (``rank_writer.py``)
    POST /v1/metrics   ->  otel_metrics_gauge, _sum, _histogram, _exponential_histogram, _summary
    POST /v1/logs      ->  otel_logs

Bodies are protobuf or JSON, with gzip, deflate or no compression. The answer has the format of the request, and is sent
once the rows are stored. Invalid records are counted in its ``partial_success``; the others are stored. Errors are a
``google.rpc.Status``:

    400         not a valid message                  501         the server is too old for these tables
    413         too large                            429, 503    retry later (Retry-After)
    415         wrong content type

OTLP is at-least-once: a sender without an answer sends again, so rows of ``otel_*`` may be stored twice. Rows of
ranks must be stored once, so they use another path (``telemetry/collector/ingest.py``).
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Future
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

from telemetry.collector.counters import Counters
from telemetry.collector.gates import RETRY_AFTER
from telemetry.collector.ingest import GroupWriter, Ingest, QueueFullError, Waiting
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
from telemetry.collector.otlp.rank_spans import RankSpan, rank_spans_of
from telemetry.collector.otlp.rank_writer import RankSpanWriter
from telemetry.collector.otlp.scopes import Decoded
from telemetry.collector.otlp.spans_and_logs import decode_logs, decode_traces
from telemetry.collector.settings import CollectorSettings
from telemetry.collector.writer import storing_failed
from telemetry.errors import UnreachableError, UsageError
from telemetry.stores.cluster import is_modern, parse_version
from telemetry.stores.interface import Store, StoreReader
from telemetry.wire.codec import Ack

GROUP_BYTES = 64 * 2**20
"""Largest group of requests, unless one request is larger."""
Rows = Mapping[str, pa.Table]
"""Table -> rows."""


class OtlpWriter(GroupWriter[Rows]):
    """Stores rows of the ``otel_*`` tables."""

    def __init__(self, store: Store, counters: Counters, *, queue_bytes: int, linger_s: float) -> None:
        super().__init__("rankscope-otlp", queue_bytes=queue_bytes, group_bytes=GROUP_BYTES, linger_s=linger_s)
        self._store = store
        self._counters = counters

    def submit(self, tables: Rows) -> "Future[None]":
        """Queue rows, table by table. The future ends when they are stored, or with an UnreachableError: send again.

        Raises:
            QueueFullError: at once, if the queue is full or closed.
        """
        done = self._enqueue(tables, sum(rows.nbytes for rows in tables.values()))
        for table, rows in tables.items():
            self._counters.received(table, rows.num_rows)
        return done

    def _store_group(self, group: list[Waiting[Rows]]) -> None:
        failure: UnreachableError | None = None
        try:
            self._insert([waiting.item for waiting in group])
        except Exception as error:
            failure = storing_failed(error)
        for waiting in group:
            waiting.finish(failure)

    def _insert(self, group: Sequence[Rows]) -> None:
        blocks: dict[str, list[pa.Table]] = {}
        for tables in group:
            for table, rows in tables.items():
                blocks.setdefault(table, []).append(rows)
        for table, parts in blocks.items():
            rows = pa.concat_tables(parts)
            began = time.perf_counter()
            self._store.insert(table, rows)
            self._counters.inserted(table, time.perf_counter() - began)
            self._counters.stored(table, Ack(rows=rows.num_rows, duplicates=0))


MAX_BODY_BYTES = 8 * 2**20
"""Limit of a request, before and after decompression. A parsed hostile request needs a hundred times as much memory."""
DECODERS = 1
"""Requests that are parsed at the same time: this bounds the memory, and more threads are not faster."""


class OldServerError(Exception):
    """The server has no Map and no DateTime64."""


@dataclass(frozen=True, slots=True)
class Signal:
    """One of the three kinds of telemetry: its messages, and how they become rows."""

    request: type[Message]
    response: type[Message]
    rows: Callable[[Any], Decoded]
    rejected_field: str
    """The field of the response that counts rejected records."""


SIGNALS = {
    "traces": Signal(ExportTraceServiceRequest, ExportTraceServiceResponse, decode_traces, "rejected_spans"),
    "metrics": Signal(
        ExportMetricsServiceRequest, ExportMetricsServiceResponse, decode_metrics, "rejected_data_points"
    ),
    "logs": Signal(ExportLogsServiceRequest, ExportLogsServiceResponse, decode_logs, "rejected_log_records"),
}


def make_otlp_router(store: Store, ingest: Ingest, counters: Counters, settings: CollectorSettings) -> APIRouter:
    """The three routes over a store. Queued rows are stored before the server ends."""
    ranks = RankSpanWriter(StoreReader(store), ingest)
    writer = OtlpWriter(store, counters, queue_bytes=settings.queue_bytes, linger_s=settings.linger_s)
    receiver = _Receiver(store, writer, ranks, limit_bytes=min(settings.max_body_bytes, MAX_BODY_BYTES))

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
            headers = request.headers
            encoding = encoding_of(headers.get("content-type", ""), headers.get("content-encoding", ""))
            decoded = await receiver.take(signal, request, encoding)
        except Exception as error:
            refused = _refused(error, encoding)
            counters.rejected(refused.status_code)
            return refused
        counters.records_rejected(name, decoded.rejected)
        answer = signal.response()
        if decoded.rejected:
            rejected = {signal.rejected_field: decoded.rejected, "error_message": decoded.reason}
            answer = signal.response(partial_success=rejected)
        return Response(encode(answer, encoding), media_type=encoding.content_type)

    return take


class _Receiver:
    def __init__(self, store: Store, writer: OtlpWriter, ranks: RankSpanWriter, *, limit_bytes: int) -> None:
        self._store = store
        self._writer = writer
        self._ranks = ranks
        self._limit_bytes = limit_bytes
        self._decoders = CapacityLimiter(DECODERS)
        self._modern = False

    async def take(self, signal: Signal, request: Request, encoding: Encoding) -> Decoded:
        body = await self._read(request)
        decoded, of_ranks = await to_thread.run_sync(self._decode, signal, body, encoding, limiter=self._decoders)
        if of_ranks:
            await self._ranks.store(of_ranks)
        if decoded.tables:
            await asyncio.wrap_future(self._writer.submit(decoded.tables))
        return decoded

    async def _read(self, request: Request) -> bytes:
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > self._limit_bytes:
                raise TooBigError(f"the body has more than {self._limit_bytes} bytes")
        return bytes(body)

    def _decode(self, signal: Signal, body: bytes, encoding: Encoding) -> tuple[Decoded, list[RankSpan]]:
        if not self._modern:
            version = self._store.query("SELECT version() AS version")["version"][0].as_py()
            if not is_modern(parse_version(version)):
                raise OldServerError(f"the store is ClickHouse {version}: the OpenTelemetry tables need 22 or newer")
            self._modern = True
        message = decode(body, encoding, signal.request, limit_bytes=self._limit_bytes)
        of_ranks = rank_spans_of(message) if isinstance(message, ExportTraceServiceRequest) else []
        return signal.rows(message), of_ranks


def _refused(error: Exception, encoding: Encoding) -> Response:
    status, reason = _status_and_reason(error)
    headers = {"Retry-After": RETRY_AFTER[status]} if status in RETRY_AFTER else {}
    body, content_type = refusal(status, reason, encoding), encoding.content_type
    return Response(body, status_code=status, media_type=content_type, headers=headers)


def _status_and_reason(error: Exception) -> tuple[int, str]:
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
