"""A real store that fails on request, before or after it has executed a call."""

import threading
from collections.abc import Callable, Mapping

import pyarrow as pa

from telemetry.errors import UnreachableError
from telemetry.stores.interface import Parameter, Store


class FaultyStore:
    """Passes every call on to ``store``, except for the faults that are switched on."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.down = False
        """Every call fails."""
        self.drop_answers = False
        """Inserts are stored and then reported as failed, as if the connection broke before the answer."""
        self.broken = False
        """Inserts raise an unexpected exception, as from a defect of this package."""
        self.gate = threading.Event()
        """Inserts wait until this event is set."""
        self.gate.set()
        self.waiting = False
        """Whether an insert has reached the gate."""

    def migrate(self) -> None:
        self._store.migrate()

    def insert(self, table: str, rows: pa.Table, *, confirm: Callable[[], None] | None = None) -> None:
        self.waiting = True
        self.gate.wait()
        self._check(self.down)
        if self.broken:
            raise ArithmeticError("a fault of ours")
        self._store.insert(table, rows, confirm=confirm)
        self._check(self.drop_answers)

    def settle(self) -> None:
        self._check(self.down)
        self._store.settle()

    def query(
        self, sql: str, parameters: Mapping[str, Parameter] | None = None, *, max_seconds: float | None = None
    ) -> pa.Table:
        self._check(self.down)
        return self._store.query(sql, parameters, max_seconds=max_seconds)

    def close(self) -> None:
        self._store.close()

    def _check(self, fault: bool) -> None:
        if fault:
            raise UnreachableError("the store is down", hint="start it again")
