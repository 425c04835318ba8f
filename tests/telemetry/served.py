"""A collector over a store, served by this process on a free port."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI

from telemetry.collector.server import create_app
from telemetry.collector.serving import configured, listen
from telemetry.collector.settings import CollectorSettings, ServerSettings
from telemetry.stores.interface import Store
from telemetry.wire.client import CollectorClient
from tests.deadline import until


@contextmanager
def serving(app: FastAPI, site: socket.socket | None = None) -> Iterator[str]:
    """The address of a server that runs in a thread during the block. ``site``: a listening socket that stays open."""
    with site.dup() if site else listen("127.0.0.1", 0) as listener:
        server = uvicorn.Server(configured(app, ServerSettings.checked()))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        until(lambda: server.started, what="the server")
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def collecting(store: Store, **settings: object) -> Iterator[CollectorClient]:
    """A client of a collector over ``store``."""
    chosen = CollectorSettings.checked(**{"linger_s": 0.0, **settings})
    token = chosen.token.get_secret_value() if chosen.token else ""
    with serving(create_app(store, chosen)) as url, CollectorClient(url, token) as client:
        yield client
