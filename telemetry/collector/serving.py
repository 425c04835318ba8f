"""How every rankscope server listens and serves: the collector, the dashboard, the driver."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI

from telemetry.collector.connections import BoundedConnection, BoundedListener, allow_files
from telemetry.collector.settings import ServerSettings
from telemetry.credentials import LEAST_TLS
from telemetry.errors import UsageError
from telemetry.process.signals import ended_by_signals

BACKLOG = 2048
SHUTDOWN_S = 1
"""Time for active requests when the server ends. Unacknowledged requests are sent again."""
SOCKETS = {"interval": "none", "websocket": "telemetry.collector.sockets:BoundedSocket"}
"""Setting ``live`` -> class for uvicorn, by name, because only the dashboard installs the package for WebSockets."""
MAX_MESSAGE_BYTES = 2**16


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


def url_of(listener: socket.socket) -> str:
    """The address of a server on ``listener``, without TLS."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


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
    serve_until(ended_by_signals(), app, listener, settings)


def serve_until(stop: threading.Event, app: FastAPI, listener: socket.socket, settings: ServerSettings) -> None:
    """Serve on a socket until ``stop`` is set. Handles no signals."""
    allow_files()
    _Server(configured(app, settings), stop).run(sockets=[listener])


def configured(app: FastAPI, settings: ServerSettings) -> uvicorn.Config:
    """Settings of every rankscope server: one parser, only the needed protocols, no trusted proxy headers."""
    config = uvicorn.Config(
        app,
        loop="asyncio",  # other loops do not accept through BoundedListener
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
