"""The seam between rankscope and a database that speaks ClickHouse SQL.

Two implementations: ``embedded.EmbeddedStore`` (chdb in this process, a folder or memory) and
``clickhouse.ClickHouseStore`` (a server over native TCP). Who asks: the collector, which owns the store; and,
for reading only, whoever opened one in memory from rank files.
"""

from collections.abc import Callable, Mapping, Sequence
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
        """Wait until every insert that anybody had registered when this was called has ended, one way or the other.

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
