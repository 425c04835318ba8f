"""Waits for inserts that still run on a server. An insert may be stored although its sender has ended.

register --> [ runs on the server ] --> ended
              |        `-- the sender was killed, or lost its connection: a *stray*
              `-- listed in system.processes; the query id of every sender begins with rankscope's prefix

Values in SQL are escaped by the driver, for both engines.
"""

import itertools
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from clickhouse_driver.util.escape import escape_params

from telemetry.stores.interface import Parameter


def render(sql: str, parameters: Mapping[str, Parameter] | None) -> str:
    """``sql`` with each ``%(name)s`` replaced by its escaped value. Sequences become ``(1, 2)``, for ``IN``."""
    if not parameters:
        return sql
    values = {name: _as_sql_value(value) for name, value in parameters.items()}
    rendered: str = sql % escape_params(values, None)
    return rendered


def _as_sql_value(value: Parameter) -> object:
    return value if isinstance(value, int | float | str) else tuple(value)


SETTLE_S = 30.0
SETTLE_POLL_S = 0.02
INSERT_MARK = "rankscope-insert-"
"""Prefix of the query id of every insert."""


class RunningInserts:
    """The inserts into one database, of this process and of all others.

    Args:
        mark: prefix of the query ids of these inserts.
        running: returns the query ids that run on the server now. The server lists an insert before it accepts rows, so
            no insert is missed.
        pending: returns names of inserts that have ended, and whose rows are visible later. See ``cluster.py``.
    """

    def __init__(self, mark: str, running: Callable[[], set[str]], pending: Callable[[], set[str]] = set) -> None:
        self._mark = mark
        self._running = running
        self._pending = pending
        self._awaited: set[str] = set()
        self._settling = threading.Lock()
        self._numbers = itertools.count(1)
        self._broken = next(self._numbers)
        """Number of the newest insert that failed. Strays of earlier processes have the first number."""
        self._settled = 0
        """All failed inserts up to this number have ended."""

    @contextmanager
    def registered(self) -> Iterator[str]:
        """A query id for the insert in the block. An insert that raises leaves a stray."""
        query_id = f"{self._mark}{uuid.uuid4()}"
        self._awaited.add(query_id)
        try:
            yield query_id
        except BaseException:
            # In this order, another thread may treat it as a stray too early, but never too late.
            self._awaited.discard(query_id)
            self._broken = next(self._numbers)
            raise
        self._awaited.discard(query_id)

    def wait_for_strays(self) -> None:
        """Wait until all strays have ended.

        Raises:
            TimeoutError: a stray does not end.
        """
        if self._settled == self._broken:
            return
        with self._settling:
            broken = self._broken
            if self._settled != broken:
                self._wait_for(self._running() - self._awaited, self._running)
                self._settled = broken

    def wait_for_all(self) -> None:
        """Wait until all inserts that run now have ended, strays or not, and their rows are visible.

        Raises:
            TimeoutError: an insert does not end.
        """
        # In this order, because inserts that have ended may become pending.
        self._wait_for(self._running(), self._running)
        self._wait_for(self._pending(), self._pending)

    def _wait_for(self, inserts: set[str], current: Callable[[], set[str]]) -> None:
        deadline = time.monotonic() + SETTLE_S
        while inserts:
            inserts = inserts & current()
            if inserts and time.monotonic() > deadline:
                raise TimeoutError(f"an insert still runs after {SETTLE_S:.0f} s: {min(inserts)}")
            if inserts:
                time.sleep(SETTLE_POLL_S)
