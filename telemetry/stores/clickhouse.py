"""A ClickHouse server over its native protocol: NumPy columns in, Arrow out."""

import logging
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from ipaddress import ip_address
from typing import Any

import numpy as np
import pyarrow as pa
from clickhouse_driver import Client
from clickhouse_driver.errors import Error, ErrorCodes, ServerException

from telemetry.errors import UnreachableError
from telemetry.stores import migrations
from telemetry.stores.address import ServerAddress
from telemetry.stores.dialect import is_modern, parse_version
from telemetry.stores.interface import Parameter
from telemetry.stores.parameters import render
from telemetry.stores.pool import Pool

NUM_CONNECTIONS = 8
CONNECT_S = 5.0
ANSWER_S = 60.0
"""Silence of the server that counts as gone; a running query reports progress much more often."""
SETTLE_S = 30.0
INSERT_MARK = "rankscope-insert-"
"""Prefix of the query id of every insert."""

_ONE_BLOCK = {
    "insert_block_size": 100_000_000,
    "min_insert_block_size_rows": 1_000_000_000,
    "min_insert_block_size_bytes": 0,
}
"""Rows travel as one block and are stored as one part: there whole or not at all."""
_MODERN = {"async_insert": 0, "low_cardinality_allow_in_native_format": 0}
"""Settings that old servers refuse to hear of."""

# The driver logs a traceback for each refused connection; here that is an UnreachableError, told once.
logging.getLogger("clickhouse_driver").addHandler(logging.NullHandler())


class ClickHouseStore:
    """A store on a server. Connects on first use, and again after the server was away.

    An insert that broke off may still be running on the server, and so may one of a collector that was killed.
    Nothing is read through this store until such inserts have ended, so what it reads is what is stored.
    """

    def __init__(self, address: ServerAddress) -> None:
        self._address = address
        self._pool: Pool[Client] = Pool(connect=self._connect, disconnect=Client.disconnect, size=NUM_CONNECTIONS)
        self._mark = f"{INSERT_MARK}{address.database}-"
        self._settling = threading.Lock()
        self._unsettled = True

    def migrate(self) -> None:
        with self._translated("create the database"):
            client = self._client(database="")
            try:
                client.execute(f"CREATE DATABASE IF NOT EXISTS {self._address.database}")
            finally:
                client.disconnect()
        migrations.migrate(self._execute, self.query)

    def insert(self, table: str, rows: pa.Table) -> None:
        names = ", ".join(rows.column_names)
        columns = [_numpy(column) for column in rows.columns]
        with self._translated(f"insert into {table}"):
            self._settle()
            try:
                with self._pool.borrow() as client:
                    query_id = f"{self._mark}{uuid.uuid4()}"
                    client.execute(f"INSERT INTO {table} ({names}) VALUES", columns, columnar=True, query_id=query_id)
            except BaseException:
                self._unsettled = True
                raise

    def query(self, sql: str, parameters: Mapping[str, Parameter] | None = None) -> pa.Table:
        with self._translated("query"):
            self._settle()
            with self._pool.borrow() as client:
                answer = client.query_arrow(render(sql, parameters), field_metadata=False)
        return pa.Table.from_arrays(answer.columns, names=answer.column_names)

    def close(self) -> None:
        self._pool.close()

    def _execute(self, sql: str) -> None:
        with self._translated("migrate"), self._pool.borrow() as client:
            client.execute(sql)

    def _connect(self) -> Client:
        client = self._client(database=self._address.database)
        (version,) = client.execute("SELECT version()", columnar=True)
        if is_modern(parse_version(str(version[0]))):
            client.settings.update(_MODERN)
        return client

    def _client(self, *, database: str) -> Client:
        address = self._address
        return Client(
            address.host,
            port=address.port,
            user=address.user,
            password=address.password,
            database=database,
            secure=address.secure,
            client_name="rankscope",
            # Packing costs more than it saves where the wire is memory.
            compression=not _is_loopback(address.host),
            connect_timeout=CONNECT_S,
            send_receive_timeout=ANSWER_S,
            settings={"use_numpy": True, **_ONE_BLOCK},
        )

    def _settle(self) -> None:
        """Wait until every insert has ended that may run without anybody waiting for it."""
        if not self._unsettled:
            return
        with self._settling:
            deadline = time.monotonic() + SETTLE_S
            stray = self._running_inserts() if self._unsettled else set()
            while stray & self._running_inserts():
                if time.monotonic() > deadline:
                    raise TimeoutError(f"an insert that broke off still runs after {SETTLE_S:.0f} s")
                time.sleep(0.05)
            self._unsettled = False

    def _running_inserts(self) -> set[str]:
        """The server knows an insert before it takes the rows, so none can start later unseen."""
        with self._pool.borrow() as client:
            answer = client.query_arrow(
                "SELECT query_id FROM system.processes WHERE startsWith(query_id, %(mark)s)", {"mark": self._mark}
            )
        return set(answer["query_id"].to_pylist())

    @contextmanager
    def _translated(self, what: str) -> Iterator[None]:
        """The driver's errors as ours."""
        try:
            yield
        except (Error, OSError, EOFError) as error:
            text = " ".join(str(error).partition("Stack trace:")[0].split())[:300]
            raise UnreachableError(f"{self._address}: {what} failed: {text}", hint=_hint(error)) from error


def _numpy(column: pa.ChunkedArray) -> Any:
    values = column.to_numpy(zero_copy_only=False)
    return values.astype(object) if values.dtype.kind in "US" else np.ascontiguousarray(values)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _hint(error: Exception) -> str:
    if not isinstance(error, ServerException):
        return "is the server up, and is this its native TCP port (9000)?"
    if error.code in (ErrorCodes.UNKNOWN_USER, ErrorCodes.WRONG_PASSWORD, ErrorCodes.REQUIRED_PASSWORD, 516):
        return "check user and password in clickhouse://user:password@host:9000/database"
    return "the server's log says more"
