"""The interface between rankscope and a database that speaks ClickHouse SQL.

Two implementations: ``embedded.EmbeddedStore`` (chdb in this process, a folder or memory) and
``clickhouse.ClickHouseStore`` (a server over native TCP). Users: the collector, which owns the store, and read-only
commands that load rank files into memory.

A query converts parameters into SQL; see ``queries``. A store in this process answers it, or the collector.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Protocol

import pyarrow as pa

Parameter = int | float | str | Sequence[int] | Sequence[str]
"""A value for ``%(name)s`` in a query. The store escapes it. Never insert it into SQL yourself."""


class Store(Protocol):
    """A database. Every method may block and may be called from any thread.

    Raises:
        UnreachableError: from every method, when the database does not answer.
    """

    def migrate(self) -> None:
        """Create or upgrade the tables. Safe to repeat. Does not change data."""

    def insert(self, table: str, rows: pa.Table, *, confirm: Callable[[], None] | None = None) -> None:
        """Append ``rows`` (the columns of ``telemetry.tables`` plus ``run_id`` and ``attempt``) as one atomic block.

            register  --confirm()-->  send rows  -->  stored, completely or not at all
                |         `-- raises: nothing is stored
                `-- from here on :meth:`settle` of every process waits for it

        On return the rows are safe, even if this process or the database is killed. After an error the rows may be
        stored or not. An error of ``confirm`` is raised unchanged, and then no row is stored. ``confirm`` may query
        this store. It must not insert or settle.
        """

    def settle(self) -> None:
        """Wait until all inserts that were registered before this call have ended, with or without success.

        Raises:
            UnreachableError: an insert still runs after half a minute.
        """

    def query(
        self, sql: str, parameters: Mapping[str, Parameter] | None = None, *, max_seconds: float | None = None
    ) -> pa.Table:
        """Run one SELECT. Each ``%(name)s`` is replaced by the value in ``parameters``.

        Raises:
            UsageError: it takes longer than ``max_seconds``, or is invalid with these parameters.
        """

    def close(self) -> None:
        """Close the database. Safe to repeat."""


OF_ATTEMPT = "run_id = %(run_id)s AND attempt = %(attempt)s"


class Query(Protocol):
    """A query with its parameters."""

    def sql(self) -> str: ...

    def parameters(self) -> dict[str, Parameter]: ...


class Fields:
    """Base of query dataclasses: their fields are the parameters."""

    __slots__ = ()

    def parameters(self) -> dict[str, Parameter]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]


def among(column: str, parameter: str, values: tuple[int, ...] | tuple[str, ...]) -> str:
    """A condition on ``column``; empty if ``values`` is empty."""
    return f" AND {column} IN %({parameter})s" if values else ""


class Reader(Protocol):
    """Answers typed queries. May block; may be called from any thread.

    Raises:
        UnreachableError: no answer.
    """

    def read(self, query: Query) -> pa.Table:
        """The rows of ``query``. Its docstring lists the columns."""


class StoreReader:
    """A reader over a store in this process: the in-memory twin of the collector's client.

    Args:
        max_seconds: limit for one query. If None, there is no limit.

    Raises:
        UsageError: a query takes longer.
    """

    def __init__(self, store: Store, *, max_seconds: float | None = None) -> None:
        self._store = store
        self._max_seconds = max_seconds

    def read(self, query: Query) -> pa.Table:
        return self._store.query(query.sql(), query.parameters(), max_seconds=self._max_seconds)
