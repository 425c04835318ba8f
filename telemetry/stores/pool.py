"""A small pool of connections to a database, each used by one thread at a time, and the limits of a query."""

import math
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Generic, TypeVar

from telemetry.errors import UsageError

_CODE = re.compile(r"Code: (\d+)")
_TOO_LONG = {159, 160}
_TOO_MUCH = {158, 307, 396}
_INVALID = {27, 36, 41, 43, 53, 62, 69, 70, 72, 153, 440}
"""Error codes for invalid parameters, such as a negative limit, a period of zero, or a list that is too long."""


def bounded(sql: str, max_seconds: float | None) -> str:
    """``sql`` with a time limit. It must not contain ``SETTINGS``."""
    if max_seconds is None:
        return sql
    return f"{sql.rstrip()} SETTINGS max_execution_time = {math.ceil(max_seconds)}, timeout_overflow_mode = 'throw'"


def fault_of_question(text: str) -> UsageError | None:
    """The user's error in an error message of the engine; None for other errors, where a retry may help."""
    found = _CODE.search(text)
    code = int(found[1]) if found else 0
    if code in _TOO_LONG:
        return UsageError(
            "the query takes too long",
            hint="query fewer steps or ranks, or raise RANKSCOPE_QUERY_SECONDS of the collector",
        )
    if code in _TOO_MUCH or (code == 241 and "for query" in text):
        return UsageError("the query needs too much memory", hint="query fewer steps or ranks")
    if code in _INVALID:
        return UsageError(
            "the query is invalid with these parameters", hint="check that its limits and periods are above zero"
        )
    return None


Connection = TypeVar("Connection")


class Pool(Generic[Connection]):
    """At most ``size`` connections, opened when needed. The connection that was used last is used first.

    After an error in the borrowing block, the connection is closed and not reused.
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
        """A connection for the block. Waits while all are in use."""
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
            self._return(connection)

    def _return(self, connection: Connection) -> None:
        with self._lock:
            if not self._closed:
                self._idle.append(connection)
                return
        self._disconnect(connection)

    @contextmanager
    def emptied(self) -> Iterator[None]:
        """Close all connections for the block. Waits until they are returned; borrowers wait. Not reentrant."""
        with ExitStack() as held:
            for _ in range(self._size):
                held.enter_context(self._free)
            self.drop_idle()
            yield

    def close(self) -> None:
        """Close idle connections now, and other connections when they are returned. Safe to repeat."""
        with self._lock:
            self._closed = True
        self.drop_idle()

    def drop_idle(self) -> None:
        """Close unused connections: their server may have stopped."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            self._disconnect(connection)
