"""A dashboard served for tests, on a free port of loopback or on a given socket, in a thread."""

import socket
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
from ui.dashboard.app import make_dashboard, mount_dashboard
from ui.dashboard.data import Reads


@contextmanager
def serving(reader: Reader, site: socket.socket | None = None) -> Iterator[str]:
    """Address of the dashboard over ``reader``. ``site``: a listening socket, which stays open."""
    server = FastAPI()
    mount_dashboard(server, reader)
    with serving_app(server, site) as address:
        yield address


@contextmanager
def serving_at(reader: Reader, now_ns: int) -> Iterator[str]:
    """Address of the pages over ``reader``, whose clock stands at ``now_ns``."""
    server = FastAPI()
    server.mount("/", make_dashboard(Reads(reader, wall_s=lambda: now_ns / 1e9), "interval").server)
    with serving_app(server) as address:
        yield address


@contextmanager
def serving_app(app: FastAPI, site: socket.socket | None = None, *, sockets: bool = True) -> Iterator[str]:
    """Address of an application."""
    ws = "auto" if sockets else "none"
    config = uvicorn.Config(app, ws=ws, log_level="warning", timeout_graceful_shutdown=1)
    with _running(config, site) as (address, _):
        yield address


@contextmanager
def serving_as_set(
    reader: Reader, settings: ServerSettings, site: socket.socket | None = None
) -> Iterator[tuple[str, uvicorn.Server]]:
    """Address and server of the dashboard as `rankscope ui` serves it, with its access checks."""
    server = FastAPI()
    guard(server, settings)
    mount_dashboard(server, reader, settings.live)
    with _running(configured(server, settings), site) as running:
        yield running


@contextmanager
def _running(config: uvicorn.Config, site: socket.socket | None = None) -> Iterator[tuple[str, uvicorn.Server]]:
    with site.dup() if site else listen("127.0.0.1", 0) as listener:
        running = uvicorn.Server(config)
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        until(lambda: running.started, what="the server's start")
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/", running
        finally:
            running.should_exit = True
            thread.join(timeout=10)
