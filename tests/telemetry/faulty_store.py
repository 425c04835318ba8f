"""A real store that fails on request, before or after it has done its work."""

import threading
from collections.abc import Mapping

import pyarrow as pa

from telemetry.errors import UnreachableError
from telemetry.stores.interface import Parameter, Store


class FaultyStore:
    """Passes everything on to ``store``, but for the faults that are switched on."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.down = False
        """Nothing answers."""
        self.drop_answers = False
        """Inserts are done, and then reported as failed: the connection broke on the way back."""
        self.gate = threading.Event()
        """Inserts wait for it."""
        self.gate.set()
        self.waiting = False
        """Whether an insert has come to the gate."""

    def migrate(self) -> None:
        self._store.migrate()

    def insert(self, table: str, rows: pa.Table) -> None:
        self.waiting = True
        self.gate.wait()
        self._check(self.down)
        self._store.insert(table, rows)
        self._check(self.drop_answers)

    def query(self, sql: str, parameters: Mapping[str, Parameter] | None = None) -> pa.Table:
        self._check(self.down)
        return self._store.query(sql, parameters)

    def close(self) -> None:
        self._store.close()

    def _check(self, fault: bool) -> None:
        if fault:
            raise UnreachableError("the store is down", hint="start it again")
