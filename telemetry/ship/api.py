"""The collector's HTTP routes.

    POST /v1/batches/{table}   Arrow in, {"rows", "duplicates"} out, once stored
    POST /v1/query             JSON in, Arrow out
    GET  /healthz  /metrics

Errors are JSON {"error", "hint"}: 400 bad input, 413 too big, 429 and 503 come back later (Retry-After).
"""

import asyncio
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.concurrency import run_in_threadpool

from telemetry.errors import TakenNameError, UnreachableError, UsageError
from telemetry.ship.counters import Counters
from telemetry.ship.ingest import Ingest, QueueFullError
from telemetry.ship.wire import ARROW_TYPE, JSON_TYPE, decode_batch, decode_query, encode
from telemetry.stores.interface import Store
from telemetry.stores.reader import StoreReader

RETRY_AFTER = {429: "1", 503: "2"}
MAX_QUESTION_BYTES = 2**20


class TooBigError(Exception):
    """The body is larger than this collector takes."""


def make_router(store: Store, ingest: Ingest, counters: Counters, *, max_body_bytes: int) -> APIRouter:
    """Routes over a store and its writer."""
    router = APIRouter()
    reader = StoreReader(store)

    @router.post("/v1/batches/{table}")
    async def take_batch(table: str, request: Request) -> Response:
        try:
            body = await _body(request, ARROW_TYPE, max_body_bytes)
            batch = await run_in_threadpool(decode_batch, table, body)
            ack = await asyncio.wrap_future(ingest.submit(batch))
        except (UsageError, TooBigError, QueueFullError, UnreachableError) as error:
            answer = refusal(error)
            counters.rejected(answer.status_code)
            return answer
        return JSONResponse({"rows": ack.rows, "duplicates": ack.duplicates})

    @router.post("/v1/query")
    async def answer_query(request: Request) -> Response:
        try:
            query = decode_query(await _body(request, JSON_TYPE, MAX_QUESTION_BYTES))
            answer = await run_in_threadpool(lambda: encode(reader.read(query)))
        except (UsageError, TooBigError, UnreachableError) as error:
            return refusal(error)
        counters.answered(type(query).__name__)
        return Response(answer, media_type=ARROW_TYPE)

    @router.get("/healthz")
    async def tell_health() -> Response:
        try:
            await run_in_threadpool(store.query, "SELECT 1")
        except UnreachableError as error:
            return refusal(error)
        return JSONResponse({"status": "ok"})

    @router.get("/metrics")
    async def tell_metrics() -> Response:
        return PlainTextResponse(counters.as_text(), media_type="text/plain; version=0.0.4")

    return router


async def _body(request: Request, content_type: str, limit_bytes: int) -> bytes:
    """The request's body.

    The type is asked for because a page in somebody's browser can send any bytes to loopback, but not this type.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip() != content_type:
        raise UsageError("wrong content type", hint=f"send Content-Type: {content_type}")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit_bytes:
            raise TooBigError(f"more than {limit_bytes} bytes")
    return bytes(body)


def refusal(error: Exception) -> JSONResponse:
    """An error as the answer that tells what to do about it."""
    status, words = _status_and_words(error)
    headers = {"Retry-After": RETRY_AFTER[status]} if status in RETRY_AFTER else {}
    return JSONResponse(words, status_code=status, headers=headers)


def _status_and_words(error: Exception) -> tuple[int, dict[str, Any]]:
    match error:
        case UnreachableError():
            return 503, {"error": error.message, "hint": error.hint}
        case TakenNameError():
            return 409, {"error": error.message, "hint": error.hint}
        case UsageError():
            return 400, {"error": error.message, "hint": error.hint}
        case TooBigError():
            return 413, {"error": str(error), "hint": "send fewer rows at a time, or raise RANKSCOPE_MAX_BODY_BYTES"}
        case _:
            return 429, {"error": "too much waits to be stored", "hint": "send it again after Retry-After seconds"}
