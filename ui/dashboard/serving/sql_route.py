"""The route ``POST /sql`` of the SQL page: it runs SQL as a database user that cannot write.

    {"sql": "SELECT 1"}  -->  {"columns": [{"name", "type"}], "rows": [["1"]], "is_cut": false, "seconds": 0.01}
                         -->  {"error", "hint"}                                    400, 413, 415, 429, 503

Before a page of another site sends JSON, its browser asks for permission. This server never permits it. One query runs
at a time.
"""

import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from anyio import CapacityLimiter, to_thread
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from telemetry.collector.gates import refuse
from telemetry.credentials import read_secret
from telemetry.errors import UnreachableError, UsageError

if TYPE_CHECKING:
    from telemetry.stores.limited_sql import LimitedSql

PATH = "/sql"
VARIABLE = "RANKSCOPE_SQL_STORE"
MAX_BODY_BYTES = 2**17
MAX_WAITING = 8
HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


def sql_from_environment(environment: Mapping[str, str] = os.environ) -> "LimitedSql | None":
    """The database of RANKSCOPE_SQL_STORE. None if it is not set.

    Raises:
        UsageError: the value is not the address of a ClickHouse server.
    """
    address = read_secret(VARIABLE, environment)
    if not address:
        return None
    from telemetry.stores.limited_sql import LimitedSql  # noqa: PLC0415 - the driver is an optional extra

    return LimitedSql(address)


def serve_sql(server: FastAPI, sql: "LimitedSql") -> None:
    """Add the route to a server."""
    threads = CapacityLimiter(1)

    async def run(request: Request) -> Response:
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return refuse(415, "wrong content type", "send Content-Type: application/json", **HEADERS)
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_BODY_BYTES:
                return refuse(413, f"more than {MAX_BODY_BYTES} bytes", "send a shorter query", **HEADERS)
        if threads.statistics().tasks_waiting >= MAX_WAITING:
            return refuse(429, "too many queries are waiting", "retry later", **HEADERS)
        return await to_thread.run_sync(_answer, body, sql, limiter=threads)

    server.add_api_route(PATH, run, methods=["POST"], include_in_schema=False, response_model=None)


def _answer(body: bytes, sql: "LimitedSql") -> Response:
    began_s = time.monotonic()
    try:
        found = asdict(sql.run(_text(body)))
    except UsageError as error:
        return refuse(400, error.message, error.hint, **HEADERS)
    except UnreachableError as error:
        return refuse(503, error.message, error.hint, **HEADERS)
    columns = [{"name": name, "type": kind} for name, kind in found["columns"]]
    seconds = round(time.monotonic() - began_s, 3)
    return JSONResponse({**found, "columns": columns, "seconds": seconds}, headers=HEADERS)


def _text(body: bytes) -> str:
    try:
        asked: Any = json.loads(body)
        text = asked["sql"]
    except (ValueError, TypeError, KeyError, RecursionError):
        text = None
    if not isinstance(text, str):
        raise UsageError("the body is not a query", hint='send {"sql": "SELECT 1"}')
    return text
