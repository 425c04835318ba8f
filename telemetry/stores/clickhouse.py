"""A ClickHouse server over its native protocol: NumPy columns in, Arrow out."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import pyarrow as pa
from clickhouse_driver.errors import ErrorCodes, NetworkError, ServerException, SocketTimeoutError

from telemetry.errors import UnreachableError, UsageError
from telemetry.stores import migrations, old_cluster, retention
from telemetry.stores.address import ServerAddress
from telemetry.stores.cluster import (
    ALL_SHARDS,
    CLUSTER_SETTINGS,
    Version,
    check_version,
    databases_of_shard,
    is_modern,
    parse_version,
    pending_inserts,
    running_on_cluster,
    shards_of_keeper,
)
from telemetry.stores.driver import Connection, UnconfirmedError, native
from telemetry.stores.inserts import INSERT_MARK, RunningInserts, render
from telemetry.stores.interface import Parameter
from telemetry.stores.pool import Pool, bounded, fault_of_question
from telemetry.stores.servers import FAULTS, Servers, hint, server_message

NUM_CONNECTIONS = 8
_ONE_BLOCK = {"min_insert_block_size_rows": 1_000_000_000, "min_insert_block_size_bytes": 0}
"""Rows are sent as one block and stored as one part, so an insert is stored completely or not at all."""
_SILENCE = {"receive_timeout": 15}
"""Seconds without data after which the server ends an insert. :meth:`ClickHouseStore.settle` waits for such inserts."""
_MODERN = {"async_insert": 0, "low_cardinality_allow_in_native_format": 0}
"""Settings that old servers reject."""
BEHIND_PAUSES_S = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
"""Pauses after errors of replicas that are behind. They usually fetch the missing rows within milliseconds."""
_SILENT = (SocketTimeoutError, TimeoutError)
_GONE = (NetworkError, OSError, EOFError, *_SILENT)
"""Errors of the driver when a connection breaks. They do not show whether an insert was stored."""


class ClickHouseStore:
    """A store on a server. Connects on first use, and again after an outage.

    An insert may still run on the server after its connection broke or its collector was killed. Queries of this
    store wait until such inserts have ended, so a query shows everything that will be stored.

    Args:
        for_reading: run only SELECT on tables, and change no settings. A read-only user is sufficient.
    """

    def __init__(self, address: ServerAddress, *, for_reading: bool = False) -> None:
        self._address = address
        self._for_reading = for_reading
        self._may_set = True
        """Whether this user may set the limits of a query. Otherwise the limits of the server's profile apply."""
        self._servers = Servers(address)
        self._pool: Pool[Connection] = Pool(
            connect=lambda: self._servers.connect(self._prepare), disconnect=Connection.disconnect, size=NUM_CONNECTIONS
        )
        self._inserts = RunningInserts(
            f"{INSERT_MARK}{address.database}-", self._running_inserts, self._pending_inserts
        )

    def migrate(self, *, limits: retention.Limits = retention.NO_CHANGE) -> None:
        with self._translated("create the database"), self._without_database() as connection:
            connection.execute(self._create_database(exists=self._database_exists(connection)))
        migrations.migrate(self.database)
        retention.retain(self.database, limits)

    def plan(self, *, limits: retention.Limits = retention.NO_CHANGE) -> list[str]:
        """The SQL statements that ``migrate`` would run. It runs none of them, and works without the database."""
        with self._translated("inspect the database"), self._without_database() as connection:

            def query(sql: str) -> pa.Table:
                return connection.query_arrow(sql, field_metadata=False)

            name = self._address.database
            database = migrations.Database(execute=_refuse, query=query, name=name, cluster=self._address.cluster)
            expiry = retention.plan(database, limits)
            created = [] if self._database_exists(connection) else [self._create_database(exists=False)]
            return created + migrations.plan(database) + expiry

    @property
    def database(self) -> migrations.Database:
        """The database, for the scripts of the schema."""
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
            return self._query(bounded(render(sql, parameters), max_seconds if self._may_set else None))

    def close(self) -> None:
        self._pool.close()

    @contextmanager
    def _without_database(self) -> Iterator[Connection]:
        """A connection that does not select the database, because it may be missing."""
        connection = self._servers.connect(self._prepare, database="")
        try:
            yield connection
        finally:
            connection.disconnect()

    def _database_exists(self, connection: Connection) -> bool:
        found = f"SELECT count() FROM system.databases WHERE name = '{self._address.database}'"
        (number,) = connection.execute(found, columnar=True)
        return bool(number[0])

    def _create_database(self, *, exists: bool) -> str:
        """``ON CLUSTER`` needs all servers. If the database exists, the statement only checks the user's rights."""
        cluster = self._address.cluster
        on_all = f" ON CLUSTER {cluster}" if cluster and not exists else ""
        return f"CREATE DATABASE IF NOT EXISTS {self._address.database}{on_all}"

    def _execute(self, sql: str) -> None:
        with self._translated("migrate"), self._connection() as connection:
            connection.execute(sql)

    def _query(self, sql: str) -> pa.Table:
        """The answer. A server of a cluster whose replica is behind gives an error. Then the next server is queried."""
        for pause_s in BEHIND_PAUSES_S:
            try:
                return self._query_available(sql)
            except ServerException as error:
                if error.code != ErrorCodes.REPLICA_IS_NOT_IN_QUORUM:
                    raise
            self._servers.prefer_next()
            self._pool.drop_idle()
            time.sleep(pause_s)
        return self._query_available(sql)

    def _query_available(self, sql: str) -> pa.Table:
        """The answer. If the connection is lost, the next available server is queried."""
        try:
            answer = self._query_once(sql)
        except _SILENT:
            raise
        except _GONE:
            answer = self._query_once(sql)
        return pa.Table.from_arrays(answer.columns, names=answer.column_names)

    def _query_once(self, sql: str) -> pa.Table:
        with self._connection() as connection:
            return connection.query_arrow(sql, field_metadata=False)

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        """A connection of the pool. If it breaks, idle connections are closed, because they use the same server."""
        try:
            with self._pool.borrow() as connection:
                yield connection
        except _GONE:
            self._pool.drop_idle()
            raise

    def _prepare(self, connection: Connection) -> None:
        """Run the first queries of a connection: which settings does the server support, and may this user set them?"""
        version = _server_version(connection)
        try:
            in_cluster = _cluster_settings(connection, version, self._address.cluster)
        except UsageError as error:
            connection.disconnect()
            raise UsageError(f"{self._address}: {error.message}", hint=error.hint) from None
        if self._for_reading:
            self._may_set = _may_set(connection)
            return
        connection.settings.update(_ONE_BLOCK | _SILENCE | in_cluster)
        if is_modern(version):
            connection.settings.update(_MODERN)

    def _running_inserts(self) -> set[str]:
        mark, cluster = _literal(f"{INSERT_MARK}{self._address.database}-"), self._address.cluster
        if cluster is None:
            return self._ids(f"SELECT query_id AS id FROM system.processes WHERE startsWith(query_id, {mark})")
        if is_modern(parse_version(self._query("SELECT version() AS version")["version"][0].as_py())):
            return self._ids(running_on_cluster(cluster, mark))
        hosts = self._query(old_cluster.hosts(cluster))["host"].to_pylist()
        return set[str]().union(*(self._running_on_host(host, mark) for host in hosts))

    def _running_on_host(self, host: str, mark: str) -> set[str]:
        """The inserts on a server of an old cluster. Empty if it does not answer."""
        user, password = _literal(self._address.user), _literal(self._address.password)
        try:
            return self._ids(old_cluster.running_inserts(_literal(host), user=user, password=password, mark=mark))
        except ServerException as error:
            if error.code != old_cluster.UNAVAILABLE:
                raise
            return set()

    def _pending_inserts(self) -> set[str]:
        if self._address.cluster is None:
            return set()
        database = self._address.database
        shards = [
            shard
            for shard in self._query(shards_of_keeper())["name"].to_pylist()
            if database in self._query(databases_of_shard(shard))["name"].to_pylist() and shard != ALL_SHARDS
        ]
        return self._ids(pending_inserts(shards, database=database)) if shards else set()

    def _ids(self, sql: str) -> set[str]:
        return set(self._query(sql)["id"].to_pylist())

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


def _literal(text: str) -> str:
    return render("%(text)s", {"text": text})


def _refuse(sql: str) -> None:
    raise AssertionError(f"a plan runs nothing: {sql}")


def _server_version(connection: Connection) -> Version:
    (version,) = connection.execute("SELECT version()", columnar=True)
    return parse_version(str(version[0]))


def _cluster_settings(connection: Connection, version: Version, cluster: str | None) -> dict[str, object]:
    """Settings of a connection to ``cluster``.

    Raises:
        UsageError: the server does not support clusters, or does not know this one.
    """
    if cluster is None:
        return {}
    if version == old_cluster.VERSION:
        return old_cluster.settings(_num_replicas(connection, cluster))
    check_version(version)
    return dict(CLUSTER_SETTINGS)


def _num_replicas(connection: Connection, cluster: str) -> int:
    """Number of replicas of the largest shard.

    Raises:
        UsageError: the server does not know this cluster.
    """
    sql = f"SELECT max(replica_num) FROM system.clusters WHERE cluster = '{cluster}'"
    (number,) = connection.execute(sql, columnar=True)
    if not number[0]:
        raise UsageError(f"the server has no cluster {cluster}", hint="SELECT DISTINCT cluster FROM system.clusters")
    return int(number[0])


def _may_set(connection: Connection) -> bool:
    (level,) = connection.execute("SELECT value FROM system.settings WHERE name = 'readonly'", columnar=True)
    return str(level[0]) != "1"
