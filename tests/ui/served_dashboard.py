"""A dashboard served for tests, on a free port of loopback, in a thread."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI

from telemetry.collector.guard import guard
from telemetry.collector.serving import configured, listen
from telemetry.collector.settings import ServerSettings
from telemetry.stores.interface import Reader
from tests.deadline import until
from ui.dashboard.app import mount_dashboard


@contextmanager
def serving(reader: Reader, port: int = 0) -> Iterator[str]:
    """Address of the dashboard over ``reader``; on a free port where none is named."""
    server = FastAPI()
    mount_dashboard(server, reader)
    with serving_app(server, port) as address:
        yield address


@contextmanager
def serving_app(app: FastAPI, port: int = 0, *, sockets: bool = True) -> Iterator[str]:
    """Address of an application."""
    ws = "auto" if sockets else "none"
    config = uvicorn.Config(app, ws=ws, log_level="warning", timeout_graceful_shutdown=1)
    with _running(config, port) as (address, _):
        yield address


@contextmanager
def serving_as_set(reader: Reader, settings: ServerSettings) -> Iterator[tuple[str, uvicorn.Server]]:
    """Address and server of the dashboard as `rankscope ui` serves it, gates and all."""
    server = FastAPI()
    guard(server, settings)
    mount_dashboard(server, reader, settings.live)
    with _running(configured(server, settings)) as running:
        yield running


@contextmanager
def _running(config: uvicorn.Config, port: int = 0) -> Iterator[tuple[str, uvicorn.Server]]:
    with listen("127.0.0.1", port) as listener:
        running = uvicorn.Server(config)
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        until(lambda: running.started, what="the server's start")
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/", running
        finally:
            running.should_exit = True
            thread.join(timeout=10)
