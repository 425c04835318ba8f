"""Connections to a database, a few of them, each used by one thread at a time."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Generic, TypeVar

Connection = TypeVar("Connection")


class Pool(Generic[Connection]):
    """At most ``size`` connections, made when needed, the last used first.

    A connection whose borrower raised is thrown away: the next one starts on a fresh one.
    """

    def __init__(
        self, *, connect: Callable[[], Connection], disconnect: Callable[[Connection], None], size: int
    ) -> None:
        self._connect = connect
        self._disconnect = disconnect
        self._size = size
        self._free = threading.BoundedSemaphore(size)
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._closed = False

    @contextmanager
    def borrow(self) -> Iterator[Connection]:
        """A connection for the block; waits while all are in use."""
        with self._free:
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                connection = self._connect()
            try:
                yield connection
            except BaseException:
                self._disconnect(connection)
                raise
            self._give_back(connection)

    def _give_back(self, connection: Connection) -> None:
        with self._lock:
            if not self._closed:
                self._idle.append(connection)
                return
        self._disconnect(connection)

    @contextmanager
    def emptied(self) -> Iterator[None]:
        """No connection for the block: waits for those in use, and whoever borrows waits. Not for two at once."""
        with ExitStack() as held:
            for _ in range(self._size):
                held.enter_context(self._free)
            self.drop_idle()
            yield

    def close(self) -> None:
        """Disconnect the idle ones now, those in use when they come back. Safe to repeat."""
        with self._lock:
            self._closed = True
        self.drop_idle()

    def drop_idle(self) -> None:
        """Disconnect those that nobody uses: their server may be gone."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            self._disconnect(connection)
