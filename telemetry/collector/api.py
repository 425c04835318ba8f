"""The collector's HTTP routes.

    POST /v1/batches/{table}   Arrow in, {"rows", "duplicates"} out, once stored
    POST /v1/query             JSON in, Arrow out
    POST /v1/profiles          the order of a profile in JSON, {"profile_id"} out; needs the full token (profiles.py)
    POST /v1/finding-actions   what a person did about a finding in JSON, {"action_id"} out (finding_actions.py)
    POST /v1/annotations       a tag, a note or a saved view in JSON, {"annotation_id"} out (annotations.py)
    GET  /v1/clock             the collector's time, in JSON
    GET  /healthz  /metrics

Errors are JSON {"error", "hint"}:

    400         bad input
    404         no such run, finding or rank
    409         another job already uses the name, or a rank cannot be profiled
    413         the body of a query or an order is too large
    415         wrong content type, or a compressed body
    416         record numbers jump; "stored" in the response is the next expected number by rank
    425         a time is more than a day in the future
    428         announce the rank first
    429, 503    retry after Retry-After seconds

``guard.py`` rejects other requests earlier. Refused batches are logged with one line each, up to a limit per minute.

With ``/v1/clock``, agents measure the offset of their host's clock (NTP, RFC 5905, section 8):

    agent      t0 ------->                  -------> t3        offset = ((t1 - t0) + (t2 - t3)) / 2
    collector           t1 --- answers --- t2                  exact to half of (t3 - t0) - (t2 - t1)
"""

import asyncio
import os
import socket
import time
from collections.abc import Callable
from dataclasses import asdict

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, CollectorRegistry, generate_latest
from prometheus_client.openmetrics import exposition as open_metrics

from telemetry.collector.annotations import AnnotationLog
from telemetry.collector.counters import Counters
from telemetry.collector.finding_actions import ActionLog
from telemetry.collector.gates import refuse
from telemetry.collector.ingest import Ingest, QueueFullError
from telemetry.collector.profiles import ProfileOrders, RefusedOrderError
from telemetry.errors import (
    AheadError,
    JumpError,
    NotStoredError,
    TakenNameError,
    UnannouncedError,
    UnreachableError,
    UsageError,
)
from telemetry.printable import log
from telemetry.stores.interface import Query, Reader, Store
from telemetry.wire.annotation import MAX_ANNOTATION_BYTES, decode_annotation
from telemetry.wire.client import STATUS_OF, CollectorTime
from telemetry.wire.codec import ARROW_TYPE, JSON_TYPE, decode_batch, decode_query, encode
from telemetry.wire.finding_action import MAX_ACTION_BYTES, decode_action
from telemetry.wire.profile_order import MAX_ORDER_BYTES, decode_order

NAME = f"{socket.gethostname()}/{os.getpid()}"
"""Name of this collector in ``/v1/clock``. Several collectors may share an address, and have different clocks."""
LINES_A_MINUTE = 20
MAX_LENGTH = 400
_MINUTE_S = 60.0


class RefusalLog:
    """Logs refused batches, up to ``LINES_A_MINUTE``. For one thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began_s = clock()
        self._lines = 0
        self._left_out = 0

    def refused(self, what: str) -> None:
        """Write a line about one batch, or count it if this minute has too many."""
        if self._clock() - self._began_s >= _MINUTE_S:
            if self._left_out:
                _write(f"refused {self._left_out} more batches")
            self._began_s, self._lines, self._left_out = self._clock(), 0, 0
        if self._lines >= LINES_A_MINUTE:
            self._left_out += 1
            return
        self._lines += 1
        _write(f"refused a batch of {what.partition(chr(10))[0][:MAX_LENGTH]}")
        if self._lines == LINES_A_MINUTE:
            _write("further refusals in this minute are only counted: see the metric rankscope_batches_rejected_total")


def _write(line: str) -> None:
    log(f"rankscope collect: {line}")


MAX_QUERY_BYTES = 2**17
"""Largest body of a query. It keeps the SQL shorter than the engine's limit (256 KiB)."""
QUERIES_AT_ONCE = 8
"""Queries that run at the same time. Further queries wait, so that queries do not block threads that receive rows."""
MAX_WAITING = 256
"""Largest number of waiting queries. Further queries get 429."""


class RejectedError(UsageError):
    """A request that is answered with ``status``."""

    def __init__(self, status: int, message: str, *, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.status = status


class _Queries:
    """Answers queries, a few at a time."""

    def __init__(self, reader: Reader, *, max_answer_bytes: int) -> None:
        self._reader = reader
        self._max_answer_bytes = max_answer_bytes
        self._threads = CapacityLimiter(QUERIES_AT_ONCE)

    async def answer(self, query: Query) -> bytes:
        """An Arrow IPC stream.

        Raises:
            UsageError: the answer is too large, the query takes too long, or too many queries wait.
            UnreachableError: the store does not answer.
        """
        if self._threads.statistics().tasks_waiting >= MAX_WAITING:
            raise RejectedError(429, "too many queries are waiting", hint="retry after Retry-After seconds")
        return await to_thread.run_sync(self._answer, query, limiter=self._threads)

    def _answer(self, query: Query) -> bytes:
        rows = self._reader.read(query)
        if rows.nbytes > self._max_answer_bytes:
            raise UsageError(
                f"the answer has {rows.nbytes} bytes; the limit of this collector is {self._max_answer_bytes}",
                hint="query fewer steps or ranks, or raise RANKSCOPE_MAX_ANSWER_BYTES",
            )
        return encode(rows)


def make_router(
    store: Store,
    reader: Reader,
    ingest: Ingest,
    counters: Counters,
    *,
    max_answer_bytes: int,
    orders: ProfileOrders,
    actions: ActionLog,
    annotations: AnnotationLog,
) -> APIRouter:
    """Routes for a store, its reader, and its writer."""
    router = APIRouter()
    queries = _Queries(reader, max_answer_bytes=max_answer_bytes)
    refusals = RefusalLog()

    @router.post("/v1/batches/{table}")
    async def take_batch(table: str, request: Request) -> Response:
        try:
            batch = await to_thread.run_sync(decode_batch, table, await _body(request, ARROW_TYPE))
            ack = await asyncio.wrap_future(ingest.submit(batch))
        except (UsageError, QueueFullError, UnreachableError) as error:
            answer = refusal(error)
            counters.rejected(answer.status_code)
            refusals.refused(f"{table}: HTTP status {answer.status_code}: {error}")
            return answer
        counts = {"rows": ack.rows, "duplicates": ack.duplicates}
        if table == "heartbeats" and (profiles := await to_thread.run_sync(orders.open_for, batch)):
            return JSONResponse({**counts, "profiles": profiles})
        return JSONResponse(counts)

    @router.post("/v1/query")
    async def answer_query(request: Request) -> Response:
        try:
            query = decode_query(await _body(request, JSON_TYPE, MAX_QUERY_BYTES))
            answer = await queries.answer(query)
        except (UsageError, UnreachableError) as error:
            return refusal(error)
        counters.answered(type(query).__name__)
        return Response(answer, media_type=ARROW_TYPE)

    _add_order_routes(router, orders, actions, annotations)
    _add_state_routes(router, store)
    return router


def _add_order_routes(router: APIRouter, orders: ProfileOrders, actions: ActionLog, annotations: AnnotationLog) -> None:
    """Add the routes for what people order, decide or write: profiles, actions on findings, and annotations."""

    @router.post("/v1/profiles")
    async def take_order(request: Request) -> Response:
        try:
            order = decode_order(await _body(request, JSON_TYPE, MAX_ORDER_BYTES))
            profile_id = await to_thread.run_sync(orders.accept, order)
        except (UsageError, UnreachableError) as error:
            return refusal(error)
        return JSONResponse({"profile_id": profile_id})

    @router.post("/v1/finding-actions")
    async def take_action(request: Request) -> Response:
        try:
            action = decode_action(await _body(request, JSON_TYPE, MAX_ACTION_BYTES))
            action_id = await to_thread.run_sync(actions.accept, action)
        except (UsageError, UnreachableError) as error:
            return refusal(error)
        return JSONResponse({"action_id": action_id})

    @router.post("/v1/annotations")
    async def take_annotation(request: Request) -> Response:
        try:
            annotation = decode_annotation(await _body(request, JSON_TYPE, MAX_ANNOTATION_BYTES))
            annotation_id = await to_thread.run_sync(annotations.accept, annotation)
        except (UsageError, UnreachableError) as error:
            return refusal(error)
        return JSONResponse({"annotation_id": annotation_id})


def _add_state_routes(router: APIRouter, store: Store) -> None:
    """Add the routes that are requested often and answered at once: health, metrics, time."""
    health_threads, metric_threads = CapacityLimiter(1), CapacityLimiter(1)

    @router.get("/healthz")
    async def answer_health() -> Response:
        try:
            await to_thread.run_sync(store.query, "SELECT 1", limiter=health_threads)
        except UnreachableError as error:
            return refusal(error)
        return JSONResponse({"status": "ok"})

    @router.get("/metrics")
    async def answer_metrics(request: Request) -> Response:
        encode_metrics, content_type = _metrics_format(request.headers.get("accept", ""))
        text = await to_thread.run_sync(encode_metrics, request.app.state.metrics, limiter=metric_threads)
        return Response(text, headers={"Content-Type": content_type})

    @router.get("/v1/clock")
    async def answer_time() -> Response:
        received_ns = time.time_ns()
        clock = CollectorTime(collector=NAME, received_ns=received_ns, answered_ns=max(received_ns, time.time_ns()))
        return JSONResponse(asdict(clock))


def _metrics_format(accept: str) -> tuple[Callable[[CollectorRegistry], bytes], str]:
    """The encoder and the content type. The Prometheus library's own choice fails on versions that are not numbers."""
    if "application/openmetrics-text" in accept.lower():
        return open_metrics.generate_latest, open_metrics.CONTENT_TYPE_LATEST
    return generate_latest, CONTENT_TYPE_PLAIN_0_0_4


async def _body(request: Request, content_type: str, limit_bytes: int | None = None) -> bytes:
    """The request's body.

    The type is checked because a page in a browser can send any bytes to loopback, but not with this type.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != content_type:
        raise RejectedError(415, "wrong content type", hint=f"send Content-Type: {content_type}")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise RejectedError(415, "the body is compressed", hint="send it uncompressed, without Content-Encoding")
    chunks, size_bytes = [], 0
    async for chunk in request.stream():
        chunks.append(chunk)
        size_bytes += len(chunk)
        if limit_bytes is not None and size_bytes > limit_bytes:
            raise RejectedError(
                413, f"the body has more than {limit_bytes} bytes", hint="query fewer ranks or names at a time"
            )
    return b"".join(chunks)


def refusal(error: Exception) -> JSONResponse:
    """The response for an error, with its hint."""
    match error:
        case JumpError():
            stored = {str(rank): seq for rank, seq in error.stored.items()}
            return refuse(STATUS_OF[JumpError], error.message, error.hint, stored)
        case TakenNameError() | AheadError() | UnannouncedError():
            return refuse(STATUS_OF[type(error)], error.message, error.hint)
        case NotStoredError():
            return refuse(404, error.message, error.hint)
        case UnreachableError():
            return refuse(503, error.message, error.hint)
        case UsageError():
            status = error.status if isinstance(error, RejectedError | RefusedOrderError) else 400
            return refuse(status, error.message, error.hint)
        case _:
            return refuse(429, "too many rows wait to be stored", "retry after Retry-After seconds")
