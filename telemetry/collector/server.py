"""The collector: one HTTP server that owns the store. One process, one worker, never forked."""

import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from fastapi import FastAPI

from telemetry.clocks.windows import ClockKeeper
from telemetry.collector.api import make_router
from telemetry.collector.connections import BoundedConnection, BoundedListener, allow_files
from telemetry.collector.counters import Counters
from telemetry.collector.guard import guard
from telemetry.collector.ingest import Ingest
from telemetry.collector.otlp.api import make_otlp_router
from telemetry.collector.settings import CollectorSettings, ServerSettings
from telemetry.credentials import LEAST_TLS
from telemetry.errors import UsageError
from telemetry.process.process_memory import limit_arenas
from telemetry.process.signals import ended_by_signals
from telemetry.stores.interface import Reader, Store, StoreReader
from telemetry.stores.open import open_store

BACKLOG = 2048
SHUTDOWN_S = 1
"""Time for active requests when the server ends. Unacknowledged requests are sent again."""
SOCKETS = {"interval": "none", "websocket": "telemetry.collector.sockets:BoundedSocket"}
"""As text: the package for WebSockets is installed with the dashboard, not with every collector."""
MAX_MESSAGE_BYTES = 2**16
Extend = Callable[[FastAPI, Reader], None]
"""Adds routes of the dashboard to the collector's server."""


def create_app(store: Store, settings: CollectorSettings) -> FastAPI:
    """The server over an open store. Its shutdown stores queued rows; the store stays open."""
    counters = Counters()
    ingest = Ingest(store, counters, queue_bytes=settings.queue_bytes, linger_s=settings.linger_s)
    clocks = ClockKeeper(store, every_s=settings.clocks_s)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        ingest.start()
        clocks.start()
        try:
            yield
        finally:
            clocks.close()
            ingest.close()

    app = FastAPI(title="rankscope collector", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    reader = answering(store, settings)
    app.include_router(make_router(store, reader, ingest, counters, max_answer_bytes=settings.max_answer_bytes))
    app.include_router(make_otlp_router(store, counters, settings))
    guard(app, settings, counters.refused)
    return app


def answering(store: Store, settings: ServerSettings) -> StoreReader:
    """Answers queries with a time limit, so that none occupies the store for long."""
    return StoreReader(store, max_seconds=settings.query_seconds)


def run_collector(settings: CollectorSettings, *, extend: Extend | None = None) -> None:
    """Serve until SIGTERM, SIGHUP or Ctrl-C; then store what was queued and return.

    Raises:
        UsageError: the address is in use or none of this machine's; or the store's address is of no known form.
        UnreachableError: the store does not answer, or another process holds it.
    """
    limit_arenas()
    # The port first: a second collector must fail before it opens the store of the first.
    with listen(settings.host, settings.port) as listener:
        store = open_store(settings.store, retention_days=settings.retention_days)
        try:
            app = create_app(store, settings)
            if extend:
                extend(app, answering(store, settings))
            serve(app, listener, settings)
        finally:
            store.close()


def listen(host: str, port: int) -> BoundedListener:
    """A listening socket.

    Raises:
        UsageError: the port is in use, or the address is not one of this machine.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = BoundedListener(family, kind, protocol)
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
            hint=f"if a collector runs there, use --store http://{host}:{port}; otherwise choose another --port",
        ) from error
    return listener


class _Server(uvicorn.Server):
    """Shuts down when ``stop`` is set. The signal handlers of uvicorn would end it at once on the second signal."""

    def __init__(self, config: uvicorn.Config, stop: threading.Event) -> None:
        super().__init__(config)
        self._stop = stop

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def on_tick(self, counter: int) -> bool:
        return self._stop.is_set() or await super().on_tick(counter)


def serve(app: FastAPI, listener: socket.socket, settings: ServerSettings) -> None:
    """Serve on a socket until SIGTERM, SIGHUP or Ctrl-C."""
    allow_files()
    _Server(configured(app, settings), ended_by_signals()).run(sockets=[listener])


def configured(app: FastAPI, settings: ServerSettings) -> uvicorn.Config:
    """Settings of every rankscope server: one parser, only the needed protocols, no trusted proxy headers."""
    config = uvicorn.Config(
        app,
        loop="asyncio",  # others accept past BoundedListener
        http=BoundedConnection,
        ws=SOCKETS[settings.live],
        ws_max_size=MAX_MESSAGE_BYTES,
        ws_per_message_deflate=False,  # a small message may unpack to a large one
        lifespan="on",
        log_level="error",  # untrusted requests must not fill the log
        access_log=False,
        proxy_headers=False,  # any client can write them
        server_header=False,
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
        timeout_graceful_shutdown=SHUTDOWN_S,
    )
    config.load()
    if config.ssl:
        config.ssl.minimum_version = LEAST_TLS
    return config
