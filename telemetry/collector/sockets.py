"""Limits on WebSockets, which exist only with ``RANKSCOPE_LIVE=websocket``: their number, size and rate.

    upgrade --> too many: closed --> guard.py --> page receives updates
                                                    |  more than FRAMES_PER_SECOND: closed
                                                    |  reads slower than it is sent for STALL_S: closed
                                                    |  no answer to a ping, 20 s after 20 s: closed

A page whose socket is closed falls back to polling. Only a server with WebSockets loads this module.
"""

import asyncio

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame
from websockets.http11 import Request

from telemetry.collector import connections
from telemetry.collector.gates import Buckets

MAX_SOCKETS = 1024
"""Largest number of sockets. All pages of a browser share a socket. Sockets also count as connections."""
FRAMES_PER_SECOND = 400.0
"""Limit for one socket, with pings and parts of messages. A page sends four."""


class BoundedSocket(WebSocketsSansIOProtocol):
    """One WebSocket, used by the server's loop only."""

    def __init__(self, *arguments: object, **settings: object) -> None:
        super().__init__(*arguments, **settings)  # type: ignore[arg-type]
        self._frames = Buckets(FRAMES_PER_SECOND)
        self._stalled: asyncio.TimerHandle | None = None

    def handle_connect(self, event: Request) -> None:
        if sum(isinstance(connection, BoundedSocket) for connection in self.connections) > MAX_SOCKETS:
            self.transport.abort()
        else:
            super().handle_connect(event)

    def handle_text(self, event: Frame) -> None:
        self._count()
        super().handle_text(event)

    def handle_bytes(self, event: Frame) -> None:
        self._count()
        super().handle_bytes(event)

    def handle_cont(self, event: Frame) -> None:
        self._count()
        super().handle_cont(event)

    def handle_ping(self) -> None:
        self._count()
        super().handle_ping()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled = self.loop.call_later(connections.STALL_S, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._cancel_stall()

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self.transport.abort()  # a client that answers no ping reads no close frame

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_stall()
        super().connection_lost(exc)

    def _count(self) -> None:
        if not self._frames.take("", self.loop.time()):
            self.transport.abort()

    def _cancel_stall(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
