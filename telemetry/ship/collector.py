"""The collector: one HTTP server that owns the store. One process, one worker, never forked."""

import signal
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import uvicorn
from fastapi import FastAPI

from telemetry.errors import UsageError
from telemetry.ship.access import TokenGate
from telemetry.ship.api import make_router
from telemetry.ship.counters import Counters
from telemetry.ship.ingest import Ingest
from telemetry.ship.settings import CollectorSettings
from telemetry.stores.interface import Store
from telemetry.stores.open import open_store

BACKLOG = 2048
SHUTDOWN_S = 10
Extend = Callable[[FastAPI, Store], None]
"""Adds routes of its own (the dashboard's) to the collector's server."""


def create_app(store: Store, settings: CollectorSettings) -> FastAPI:
    """The server over an open store. Its end stores what was queued; the store stays open."""
    counters = Counters()
    ingest = Ingest(store, counters, queue_bytes=settings.queue_bytes, linger_s=settings.linger_s)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        ingest.start()
        try:
            yield
        finally:
            ingest.close()

    app = FastAPI(title="rankscope collector", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.include_router(make_router(store, ingest, counters, max_body_bytes=settings.max_body_bytes))
    if settings.token:
        app.add_middleware(TokenGate, token=settings.token.get_secret_value())
    return app


def run_collector(settings: CollectorSettings, *, extend: Extend | None = None) -> None:
    """Serve until SIGTERM or Ctrl-C; then store what was queued and return.

    Raises:
        UsageError: the address is in use or none of this machine's; or the store's address is of no known form.
        UnreachableError: the store does not answer, or another process holds it.
    """
    # The port first: a second collector must fail before it touches the first one's store.
    with listen(settings.host, settings.port) as listener:
        store = open_store(settings.store)
        try:
            app = create_app(store, settings)
            if extend:
                extend(app, store)
            serve(app, listener)
        finally:
            store.close()


def listen(host: str, port: int) -> socket.socket:
    """A listening socket.

    Raises:
        UsageError: the port is in use, or the address is not one of this machine.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
            listener.listen(BACKLOG)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        raise UsageError(
            f"cannot listen on {host}:{port}: {error.strerror}",
            hint=f"another collector may run there: use it with --store http://{host}:{port}, or choose another --port",
        ) from error
    return listener


def serve(app: FastAPI, listener: socket.socket) -> None:
    """Serve on a socket until SIGTERM or Ctrl-C."""
    # uvicorn shuts down in order on these signals, then raises them again: here that ends nothing any more.
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, lifespan="on", timeout_graceful_shutdown=SHUTDOWN_S
    )
    try:
        with suppress(KeyboardInterrupt):
            uvicorn.Server(config).run(sockets=[listener])
    finally:
        signal.signal(signal.SIGTERM, before)
