"""The keeper of one node: a process that holds the parts of replicas in its memory, and serves them.

ranks of this node, ranks of the node before it --- parts ---> keeper --- ranges ---> ranks of the next attempt

    POST /v1/parts                                             a part; the answer comes when it is held
    GET  /v1/parts                                             the parts that are held, without content
    GET  /v1/parts/ATTEMPT/STEP/WRITER/RANK/FILE?begin&length  a range of a file
    POST /v1/keep?attempt&step&writer_id                       drop all other generations; all without parameters

It is a child of the executor and ends with it, also with kill -9. Its memory has no name, so nothing is left behind. It
is a separate process, because the executor forks ranks and must have no threads.
"""

import os
import sys
from collections.abc import Callable

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.requests import ClientDisconnect

from telemetry.collector.connections import BoundedListener
from telemetry.collector.gates import refuse
from telemetry.collector.guard import guard
from telemetry.collector.serving import serve
from telemetry.collector.settings import ServerSettings
from telemetry.errors import RankscopeError
from telemetry.process.child_process import end_with_starter
from trainer.json_records import encode
from trainer.replicas.client import SEND_S
from trainer.replicas.memory_limits import Memory, usable_memory
from trainer.replicas.part_store import Incoming, PartStore, RefusedError
from trainer.replicas.parts import LENGTH_BYTES, MAX_HEADER_BYTES, Generation, read_header

MAX_PART_BYTES = 1 << 40
"""Largest part. The memory of the node sets a smaller limit: see ``part_store.py``."""


class Body:
    """The body of a request that sends a part, piece by piece. ``memory``: returns the memory that can be used now."""

    def __init__(self, store: PartStore, memory: Callable[[], Memory]) -> None:
        self._store, self._memory = store, memory
        self._head = b""
        self._incoming: Incoming | None = None

    def add(self, piece: bytes) -> None:
        """Add the next bytes.

        Raises:
            UsageError: the bytes are no part, or the part cannot be held.
        """
        if self._incoming is not None:
            self._incoming.add(piece)
            return
        self._head += piece
        size = int.from_bytes(self._head[:LENGTH_BYTES])
        if len(self._head) >= LENGTH_BYTES and size > MAX_HEADER_BYTES:
            raise RefusedError("the header of the part is too long", hint="use the same version on all nodes")
        end = LENGTH_BYTES + size
        if len(self._head) < max(end, LENGTH_BYTES + 1):
            return
        memory = self._memory()
        part = read_header(self._head[LENGTH_BYTES:end])
        self._incoming = self._store.begin(part, total_bytes=memory.total_bytes, free_bytes=memory.free_bytes)
        self._incoming.add(self._head[end:])

    def end(self) -> None:
        """Hold the part, after all of its bytes were added.

        Raises:
            RefusedError: the part is cut off or damaged.
        """
        if self._incoming is None:
            raise RefusedError("the part has no header", hint="use the same version on all nodes")
        self._store.end(self._incoming)


def make_app(store: PartStore, settings: ServerSettings, memory: Callable[[], Memory] = usable_memory) -> FastAPI:
    """The server of one keeper."""
    app = FastAPI(title="rankscope keeper", docs_url=None, redoc_url=None, openapi_url=None)

    @app.exception_handler(RankscopeError)
    async def wrong(_: Request, error: RankscopeError) -> JSONResponse:
        return refuse(400, error.message, error.hint)

    @app.exception_handler(ClientDisconnect)
    async def gone(_: Request, __: ClientDisconnect) -> Response:
        return Response(status_code=400)

    @app.post("/v1/parts")
    async def receive(request: Request) -> Response:
        body = Body(store, memory)
        async for piece in request.stream():
            body.add(piece)
        body.end()
        return Response(status_code=204)

    @app.get("/v1/parts")
    async def parts() -> Response:
        return Response(encode(store.parts()), media_type="application/json")

    @app.get("/v1/parts/{attempt}/{step}/{writer_id}/{rank}/{name}")
    async def read(
        attempt: int, step: int, writer_id: str, rank: int, name: str, begin: int = 0, length: int = 0
    ) -> Response:
        content = store.read(Generation(attempt, step, writer_id), rank, name)
        if content is None or begin < 0 or length < 0:
            return refuse(404, "this part is not held", "another keeper may hold it")
        return Response(bytes(content[begin : begin + length]), media_type="application/octet-stream")

    @app.post("/v1/keep")
    async def keep(attempt: int = -1, step: int = -1, writer_id: str = "") -> Response:
        store.keep_only({Generation(attempt, step, writer_id)})
        return Response(status_code=204)

    guard(app, settings)
    return app


def keeper_settings(host: str, token: str) -> ServerSettings:
    """The limits of a keeper."""
    return ServerSettings.of_job(
        host=host,
        token=token,
        max_body_bytes=MAX_PART_BYTES,
        max_bodies_bytes=MAX_PART_BYTES,
        body_seconds=SEND_S,
        requests_per_second=0,
    )


def main() -> None:
    """``python -m trainer.replicas.keeper DESCRIPTOR``: serve on an inherited socket. The token is on stdin."""
    end_with_starter()
    token = sys.stdin.readline().strip()
    with BoundedListener(fileno=int(sys.argv[1])) as listener:
        settings = keeper_settings(listener.getsockname()[0], token)
        serve(make_app(PartStore(), settings), listener, settings)


if __name__ == "__main__":
    os.umask(0o077)
    main()
