"""Inserts that a server still works on: one whose sender is gone may still be stored later, so it is waited for.

register --> [ server works on it ] --> ended
              |        `-- its sender was killed, or lost its connection: a *stray*
              `-- in system.processes, from any sender, under a query id that begins with rankscope's prefix

Values are put into SQL with the driver's own escaping, for both engines alike.
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
        mark: what every query id of theirs begins with.
        running: asks the server for those that it works on now. It knows an insert before it takes the rows, so
            none can start later unseen.
    """

    def __init__(self, mark: str, running: Callable[[], set[str]]) -> None:
        self._mark = mark
        self._running = running
        self._awaited: set[str] = set()
        self._settling = threading.Lock()
        self._numbers = itertools.count(1)
        self._broken = next(self._numbers)
        """Number of the newest insert that broke off; strays of earlier processes count as the first."""
        self._settled = 0
        """All that broke off up to this number have ended."""

    @contextmanager
    def registered(self) -> Iterator[str]:
        """A query id for the insert in the block. One that raises leaves a stray."""
        query_id = f"{self._mark}{uuid.uuid4()}"
        self._awaited.add(query_id)
        try:
            yield query_id
        except BaseException:
            # In this order: whoever looks in between takes it for a stray too early, never too late.
            self._awaited.discard(query_id)
            self._broken = next(self._numbers)
            raise
        self._awaited.discard(query_id)

    def wait_for_strays(self) -> None:
        """Wait until every insert has ended that may run without anybody waiting for it.

        Raises:
            TimeoutError: one does not end.
        """
        if self._settled == self._broken:
            return
        with self._settling:
            broken = self._broken
            if self._settled != broken:
                self._wait_for(self._running() - self._awaited)
                self._settled = broken

    def wait_for_all(self) -> None:
        """Wait until every insert has ended that runs now, awaited or not.

        Raises:
            TimeoutError: one does not end.
        """
        self._wait_for(self._running())

    def _wait_for(self, inserts: set[str]) -> None:
        deadline = time.monotonic() + SETTLE_S
        while inserts:
            inserts = inserts & self._running()
            if inserts and time.monotonic() > deadline:
                raise TimeoutError(f"an insert still runs after {SETTLE_S:.0f} s")
            if inserts:
                time.sleep(SETTLE_POLL_S)
