"""The interface between rankscope and a database that speaks ClickHouse SQL.

Two implementations: ``embedded.EmbeddedStore`` (chdb in this process, a folder or memory) and
``clickhouse.ClickHouseStore`` (a server over native TCP). Users: the collector, which owns the store, and read-only
commands that load rank files into memory.

A query turns parameters into SQL; see ``queries``. It is answered by an own store, or by the collector that owns one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Protocol

import pyarrow as pa

Parameter = int | float | str | Sequence[int] | Sequence[str]
"""What may stand for ``%(name)s`` in a query. Always escaped by the store; never spliced into SQL by hand."""


class Store(Protocol):
    """A database. Every method may block and may be called from any thread.

    Raises:
        UnreachableError: from every method, when the database does not answer.
    """

    def migrate(self) -> None:
        """Create or upgrade the tables. Safe to repeat; touches no data."""

    def insert(self, table: str, rows: pa.Table, *, confirm: Callable[[], None] | None = None) -> None:
        """Append ``rows`` (the columns of ``telemetry.tables`` plus ``run_id`` and ``attempt``) as one atomic block.

            register  --confirm()-->  send rows  -->  stored, there whole or not at all
                |         `-- raises: nothing is stored
                `-- from here on :meth:`settle` of every process waits for it

        On return the rows survive a kill of this process and of the database's. A raise promises nothing: the rows may
        or may not be there; but a raise of ``confirm``, which passes through, promises that none is. ``confirm`` may
        ask this store; it must not insert or settle.
        """

    def settle(self) -> None:
        """Wait until every insert that was registered before this call has ended, with or without success.

        Raises:
            UnreachableError: one still runs after half a minute.
        """

    def query(
        self, sql: str, parameters: Mapping[str, Parameter] | None = None, *, max_seconds: float | None = None
    ) -> pa.Table:
        """Run one SELECT whose ``%(name)s`` marks stand for ``parameters``.

        Raises:
            UsageError: it takes longer than ``max_seconds``, or makes no sense with these parameters.
        """

    def close(self) -> None:
        """Let go of the database. Safe to repeat."""


OF_ATTEMPT = "run_id = %(run_id)s AND attempt = %(attempt)s"


class Query(Protocol):
    """A question with its parameters."""

    def sql(self) -> str: ...

    def parameters(self) -> dict[str, Parameter]: ...


class Fields:
    """Parameters are the fields."""

    __slots__ = ()

    def parameters(self) -> dict[str, Parameter]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]


def among(column: str, parameter: str, values: tuple[int, ...] | tuple[str, ...]) -> str:
    """A condition on ``column``, nothing when ``values`` is empty."""
    return f" AND {column} IN %({parameter})s" if values else ""


class Reader(Protocol):
    """Answers typed queries. May block; may be called from any thread.

    Raises:
        UnreachableError: no answer.
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
