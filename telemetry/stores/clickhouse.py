"""A ClickHouse server over its native protocol: NumPy columns in, Arrow out."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import pyarrow as pa
from clickhouse_driver.errors import NetworkError, SocketTimeoutError

from telemetry.errors import UnreachableError, UsageError
from telemetry.stores import migrations, retention
from telemetry.stores.address import ServerAddress
from telemetry.stores.cluster import (
    CLUSTER_SETTINGS,
    FIRST_VERSION,
    Version,
    is_modern,
    parse_version,
    running_on_cluster,
)
from telemetry.stores.driver import Connection, UnconfirmedError, native
from telemetry.stores.inserts import INSERT_MARK, RunningInserts, render
from telemetry.stores.interface import Parameter
from telemetry.stores.pool import Pool, bounded, fault_of_question
from telemetry.stores.servers import FAULTS, Servers, hint, server_message

NUM_CONNECTIONS = 8
_ONE_BLOCK = {"min_insert_block_size_rows": 1_000_000_000, "min_insert_block_size_bytes": 0}
"""Rows travel as one block and are stored as one part: there whole or not at all."""
_SILENCE = {"receive_timeout": 15}
"""Seconds: an insert ends whose sender stands still, or :meth:`ClickHouseStore.settle` would wait for minutes."""
_MODERN = {"async_insert": 0, "low_cardinality_allow_in_native_format": 0}
"""Settings that old servers reject."""
_SILENT = (SocketTimeoutError, TimeoutError)
_GONE = (NetworkError, OSError, EOFError, *_SILENT)
"""What the driver raises when a connection breaks; none of it says what became of an insert."""


class ClickHouseStore:
    """A store on a server. Connects on first use, and again after an outage.

    An insert that broke off may still be running on the server, and so may one of a collector that was killed.
    Nothing is read through this store until such inserts have ended, so what it reads is what is stored.

    Args:
        for_reading: ask nothing but SELECT, of the tables alone, and set no setting: a read-only user may do that.
    """

    def __init__(self, address: ServerAddress, *, for_reading: bool = False) -> None:
        self._address = address
        self._for_reading = for_reading
        self._may_set = True
        """Whether this user may limit a query; otherwise the limits of the server's profile apply."""
        self._servers = Servers(address)
        self._pool: Pool[Connection] = Pool(
            connect=lambda: self._servers.connect(self._prepare), disconnect=Connection.disconnect, size=NUM_CONNECTIONS
        )
        self._inserts = RunningInserts(f"{INSERT_MARK}{address.database}-", self._running_inserts)

    def migrate(self, *, retention_days: int | None = None) -> None:
        with self._translated("create the database"), self._without_database() as connection:
            connection.execute(self._create_database())
        migrations.migrate(self.database)
        if retention_days is not None:
            retention.retain(self.database, retention_days)

    def plan(self, *, retention_days: int | None = None) -> list[str]:
        """The database need not be there."""
        with self._translated("look at the database"), self._without_database() as connection:

            def ask(sql: str) -> pa.Table:
                return connection.query_arrow(sql, field_metadata=False)

            name = self._address.database
            there = ask(f"SELECT name FROM system.databases WHERE name = '{name}'").num_rows
            seen = migrations.Database(execute=_refuse, query=ask, name=name, cluster=self._address.cluster)
            limits = [] if retention_days is None else retention.plan(seen, retention_days)
            return [self._create_database()] * (not there) + migrations.plan(seen) + limits

    @property
    def database(self) -> migrations.Database:
        """As the scripts of the schema see it."""
        name, cluster = self._address.database, self._address.cluster
        return migrations.Database(execute=self._execute, query=self.query, name=name, cluster=cluster)

    def insert(self, table: str, rows: pa.Table, *, confirm: Callable[[], None] | None = None) -> None:
        assert not self._for_reading, "opened for reading"
        names = ", ".join(rows.column_names)
        columns = [native(column) for column in rows.columns]
        try:
            with self._translated(f"insert into {table}"):
                self._inserts.wait_for_strays()
                with self._inserts.registered() as query_id, self._connection() as connection:
                    connection.confirm = confirm
                    connection.execute(
                        f"INSERT INTO {table} ({names}) VALUES", columns, columnar=True, query_id=query_id
                    )
        except UnconfirmedError as refused:
            raise refused.reason from None

    def settle(self) -> None:
        with self._translated("settle"):
            self._inserts.wait_for_all()

    def query(
        self, sql: str, parameters: Mapping[str, Parameter] | None = None, *, max_seconds: float | None = None
    ) -> pa.Table:
        with self._translated("query"):
            if not self._for_reading:
                self._inserts.wait_for_strays()
            return self._ask(bounded(render(sql, parameters), max_seconds if self._may_set else None))

    def close(self) -> None:
        self._pool.close()

    @contextmanager
    def _without_database(self) -> Iterator[Connection]:
        """A connection for when the database may not be there."""
        connection = self._servers.connect(self._prepare, database="")
        try:
            yield connection
        finally:
            connection.disconnect()

    def _create_database(self) -> str:
        address = self._address
        on_all = f" ON CLUSTER {address.cluster}" if address.cluster else ""
        return f"CREATE DATABASE IF NOT EXISTS {address.database}{on_all}"

    def _execute(self, sql: str) -> None:
        with self._translated("migrate"), self._connection() as connection:
            connection.execute(sql)

    def _ask(self, sql: str) -> pa.Table:
        """The answer. If the connection is lost, the next available server is queried."""
        try:
            answer = self._ask_once(sql)
        except _SILENT:
            raise
        except _GONE:
            answer = self._ask_once(sql)
        return pa.Table.from_arrays(answer.columns, names=answer.column_names)

    def _ask_once(self, sql: str) -> pa.Table:
        with self._connection() as connection:
            return connection.query_arrow(sql, field_metadata=False)

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        """One of the pool's. When it breaks, the idle ones are let go: theirs is the same server."""
        try:
            with self._pool.borrow() as connection:
                yield connection
        except _GONE:
            self._pool.drop_idle()
            raise

    def _prepare(self, connection: Connection) -> None:
        """First queries on a connection: the settings that this server knows, and whether this user may set them."""
        version = _greet(connection)
        if self._address.cluster and version < FIRST_VERSION:
            connection.disconnect()
            found = f"{self._address}: cluster= with servers of version {version[0]}.{version[1]}"
            raise UsageError(found, hint=f"{FIRST_VERSION[0]} or newer is needed")
        if self._for_reading:
            self._may_set = _may_set(connection)
            return
        connection.settings.update(_ONE_BLOCK | _SILENCE)
        if is_modern(version):
            connection.settings.update(_MODERN)
        if self._address.cluster:
            connection.settings.update(CLUSTER_SETTINGS)

    def _running_inserts(self) -> set[str]:
        mark = render("%(mark)s", {"mark": f"{INSERT_MARK}{self._address.database}-"})
        if self._address.cluster is None:
            sql = f"SELECT query_id AS id FROM system.processes WHERE startsWith(query_id, {mark})"
        else:
            sql = running_on_cluster(self._address.cluster, mark)
        return set(self._ask(sql)["id"].to_pylist())

    @contextmanager
    def _translated(self, what: str) -> Iterator[None]:
        """Convert the driver's errors to rankscope's."""
        try:
            yield
        except FAULTS as error:
            if what == "query" and (fault := fault_of_question(server_message(error))):
                raise fault from error
            raise UnreachableError(
                f"{self._address}: {what} failed: {server_message(error)}", hint=hint(error)
            ) from error


def _refuse(sql: str) -> None:
    raise AssertionError(f"a plan runs nothing: {sql}")


def _greet(connection: Connection) -> Version:
    (version,) = connection.execute("SELECT version()", columnar=True)
    return parse_version(str(version[0]))


def _may_set(connection: Connection) -> bool:
    (level,) = connection.execute("SELECT value FROM system.settings WHERE name = 'readonly'", columnar=True)
    return str(level[0]) != "1"
