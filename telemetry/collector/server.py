"""The collector: one HTTP server that owns the store. One process, one worker, never forked."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from fastapi import FastAPI
from prometheus_client import CollectorRegistry, ProcessCollector

from telemetry.clocks.windows import ClockKeeper
from telemetry.collector.annotations import AnnotationLog
from telemetry.collector.api import make_router
from telemetry.collector.counters import Counters
from telemetry.collector.finding_actions import ActionLog
from telemetry.collector.guard import guard
from telemetry.collector.ingest import Ingest
from telemetry.collector.otlp.api import make_otlp_router
from telemetry.collector.profiles import ProfileOrders
from telemetry.collector.serving import listen, serve
from telemetry.collector.settings import CollectorSettings, ServerSettings
from telemetry.process.process_memory import limit_arenas
from telemetry.stores.interface import Reader, Store, StoreReader
from telemetry.stores.open import open_store

Extend = Callable[[FastAPI, Reader], None]
"""Adds routes of the dashboard and further metrics to the collector's server."""


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
    app.state.metrics = CollectorRegistry()  # `extend` registers further metrics; they may block
    app.state.metrics.register(counters)
    ProcessCollector(registry=app.state.metrics)
    reader = answering(store, settings)
    orders = ProfileOrders(store, reader, is_open=bool(settings.tokens.full))
    app.include_router(
        make_router(
            store,
            reader,
            ingest,
            counters,
            max_answer_bytes=settings.max_answer_bytes,
            orders=orders,
            actions=ActionLog(store=store, reader=reader),
            annotations=AnnotationLog(store=store, reader=reader),
        )
    )
    app.include_router(make_otlp_router(store, ingest, counters, settings))
    guard(app, settings, counters.refused)
    return app


def answering(store: Store, settings: ServerSettings) -> StoreReader:
    """A reader with a time limit for each query, so that no query occupies the store for long."""
    return StoreReader(store, max_seconds=settings.query_seconds)


def run_collector(settings: CollectorSettings, *, extend: Extend | None = None) -> None:
    """Serve until SIGTERM, SIGHUP or Ctrl-C; then store what was queued and return.

    Raises:
        UsageError: the address is in use or not one of this machine, or the address of the store is invalid.
        UnreachableError: the store does not answer, or another process holds it.
    """
    limit_arenas()
    # The port is opened first: a second collector must fail before it opens the store of the first.
    with listen(settings.host, settings.port) as listener:
        store = open_store(settings.store, limits=settings.limits)
        try:
            app = create_app(store, settings)
            if extend:
                extend(app, answering(store, settings))
            serve(app, listener, settings)
        finally:
            store.close()
