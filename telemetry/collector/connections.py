"""Limits on connections: their number, and how slowly they may send or read.

    accepted --head within HEAD_S--> request --body: guard.py--> answer --read at MIN_READ_BYTES a STALL_S--> idle, 5 s
       |              else closed                                             else closed
       +-- more than MAX_CONNECTIONS: closed at once; this includes connections that are still in the TLS handshake

Every installation uses the same strict HTTP parser. It also limits the head (16 KiB).
"""

import asyncio
import resource
import socket
from contextlib import suppress
from typing import Any
from weakref import WeakSet

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_S = 10.0
"""Longest time from the connection, or the end of the previous answer, to the end of a request's head."""
STALL_S = 30.0
MIN_READ_BYTES = 2**20
"""Least bytes that a client must read in each ``STALL_S``."""
MAX_CONNECTIONS = 4096
OTHER_FILES = 512
"""Other open files of the process, mostly those of an embedded store."""


class BoundedListener(socket.socket):
    """A socket that limits the number of connections, for every protocol."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.held: WeakSet[_Accepted] = WeakSet()

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection.

        Raises:
            ConnectionAbortedError: there are too many connections, and this one was closed.
        """
        plain, address = super().accept()
        if len(self.held) >= max_connections():
            plain.close()
            raise ConnectionAbortedError
        return _Accepted(plain, self.held), address


class _Accepted(socket.socket):
    def __init__(self, plain: socket.socket, held: "WeakSet[_Accepted]") -> None:
        super().__init__(plain.family, plain.type, plain.proto, fileno=plain.detach())
        self._held = held
        held.add(self)

    def close(self) -> None:
        self._held.discard(self)
        super().close()


class BoundedConnection(H11Protocol):
    """One HTTP connection, used by the server's loop only."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._head_due: asyncio.TimerHandle | None = None
        self._check_due: asyncio.TimerHandle | None = None
        self._unread_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:
            _cancel(self._head_due)

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        if self.transport.get_write_buffer_size():
            self.transport.abort()  # an earlier answer was not read: browsers do not do this
            return
        _cancel(self._head_due)
        super().handle_websocket_upgrade(event)

    def on_response_complete(self) -> None:
        before = self.cycle
        super().on_response_complete()
        if self.cycle is before:
            self._await_head()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread_bytes = self.transport.get_write_buffer_size()
        self._check_due = self.loop.call_later(STALL_S, self._check_reader)

    def resume_writing(self) -> None:
        super().resume_writing()
        _cancel(self._check_due)

    def connection_lost(self, exc: Exception | None) -> None:
        _cancel(self._head_due)
        _cancel(self._check_due)
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        # If an answer has begun already, no other answer can be sent.
        with suppress(Exception):
            super().send_400_response(msg)
        self.transport.close()

    def _await_head(self) -> None:
        _cancel(self._head_due)
        self._head_due = self.loop.call_later(HEAD_S, self.transport.close)

    def _check_reader(self) -> None:
        """Close the connection of a slow reader: its answer fills memory."""
        unread = self.transport.get_write_buffer_size()
        if unread > self._unread_bytes - MIN_READ_BYTES:
            self.transport.abort()
            return
        self._unread_bytes = unread
        self._check_due = self.loop.call_later(STALL_S, self._check_reader)


def max_connections() -> int:
    """Largest number of connections. It follows from the limit of open files, minus the files of the process itself."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_CONNECTIONS if soft == resource.RLIM_INFINITY else max(16, min(MAX_CONNECTIONS, soft - OTHER_FILES))


def allow_files() -> None:
    """Raise the limit of open files: the usual 1024 are too few for many agents."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_CONNECTIONS + OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
