"""Who answers typed queries: a store at hand, or the collector that owns one."""

from typing import Protocol

import pyarrow as pa

from telemetry.stores.interface import Store
from telemetry.stores.question import Query


class Reader(Protocol):
    """Answers typed queries. May block; may be called from any thread.

    Raises:
        UnreachableError: nobody answers.
    """

    def read(self, query: Query) -> pa.Table:
        """The rows of ``query``, with the columns its docstring names."""


class StoreReader:
    """A reader over a store in this process: the in-memory twin of the collector's client.

    Args:
        max_seconds: what one answer may take; None: as long as it takes.

    Raises:
        UsageError: it would take longer.
    """

    def __init__(self, store: Store, *, max_seconds: float | None = None) -> None:
        self._store = store
        self._max_seconds = max_seconds

    def read(self, query: Query) -> pa.Table:
        return self._store.query(query.sql(), query.parameters(), max_seconds=self._max_seconds)
