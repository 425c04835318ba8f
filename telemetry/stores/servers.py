"""Chooses the server of a database, and when to retry after no server answered.

a: works ---- fails ------.                      pauses: 0.1 s, 0.2 s, ... up to 2 s, each with a random part,
b: tried next, becomes the first choice          so that many collectors do not retry at once
a: tried again when b fails and a's pause is over
"""

import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from clickhouse_driver.errors import Error, ErrorCodes, ServerException

from telemetry.errors import UnreachableError
from telemetry.stores.address import Host, ServerAddress
from telemetry.stores.driver import Connection, make_connection

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 2.0
AUTHENTICATION_FAILED = 516
"""Error code of newer servers. It does not show whether the user or the password is wrong."""
REFUSED = frozenset(
    {
        AUTHENTICATION_FAILED,
        ErrorCodes.UNKNOWN_USER,
        ErrorCodes.WRONG_PASSWORD,
        ErrorCodes.REQUIRED_PASSWORD,
        ErrorCodes.UNKNOWN_DATABASE,
        ErrorCodes.IP_ADDRESS_NOT_ALLOWED,
    }
)
"""Permanent errors: a retry, or another server, gives the same error."""
KEEPER_FAILED = frozenset({ErrorCodes.NO_ZOOKEEPER, ErrorCodes.TABLE_IS_READ_ONLY, ErrorCodes.KEEPER_EXCEPTION})
TOO_FEW_REPLICAS = frozenset(
    {
        ErrorCodes.TOO_LESS_LIVE_REPLICAS,
        ErrorCodes.UNSATISFIED_QUORUM_FOR_PREVIOUS_WRITE,
        ErrorCodes.UNKNOWN_STATUS_OF_INSERT,
        ErrorCodes.REPLICA_IS_NOT_IN_QUORUM,
    }
)
"""Errors of a cluster. They may end without a change of the client."""
FAULTS = (Error, OSError, EOFError)
"""Errors of the driver."""


@dataclass(slots=True)
class _ServerState:
    """Recent failures of a server."""

    failures: int = 0
    not_before: float = 0.0


class Servers:
    """The servers of one database. May be used by many threads.

    Args:
        make: creates a connection to a host, with the parameters of :func:`make_connection`.
        clock: monotonic seconds.
        wait: sleeps for seconds.
    """

    def __init__(
        self,
        address: ServerAddress,
        *,
        make: Callable[..., Connection] = make_connection,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self._address = address
        self._make = make
        self._clock = clock
        self._wait = wait
        self._lock = threading.Lock()
        self._order = list(address.hosts)
        """The servers in the order in which they are tried. The server that answered last is first."""
        self._states = {host: _ServerState() for host in address.hosts}

    def connect(self, prepare: Callable[[Connection], object], *, database: str | None = None) -> Connection:
        """An open connection to the first server that answers. Waits for a pause first if all servers have failed.

        Args:
            prepare: runs the first query.
            database: the database to select. If None, the database of the address; if empty, no database.

        Raises:
            UnreachableError: no server answers, or one gives a permanent error. Then no other server is tried.
        """
        name = self._address.database if database is None else database
        faults: list[str] = []
        for host in self._due():
            connection = self._make(self._address, host, database=name)
            try:
                prepare(connection)
            except FAULTS as error:
                with suppress(*FAULTS):
                    connection.disconnect()
                self._failed(host)
                if _is_refusal(error):
                    raise UnreachableError(f"{self._address}: {server_message(error)}", hint=hint(error)) from error
                faults.append(f"{host}: {server_message(error)}")
                last = error
            else:
                self._answered(host)
                return connection
        raise UnreachableError(f"{self._address}: no server answers: {'; '.join(faults)}", hint=hint(last)) from last

    def prefer_next(self) -> None:
        """Try the first server last from now on."""
        with self._lock:
            self._order.append(self._order.pop(0))

    def _due(self) -> list[Host]:
        """The servers to try now, in order. If all failed recently, waits for the server whose pause ends first."""
        with self._lock:
            now = self._clock()
            due = [host for host in self._order if self._states[host].not_before <= now]
            soonest = min(self._order, key=lambda host: self._states[host].not_before)
            pause = self._states[soonest].not_before - now
        if due:
            return due
        self._wait(pause)
        return [soonest]

    def _failed(self, host: Host) -> None:
        with self._lock:
            state = self._states[host]
            pause = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(state.failures, 16))
            state.failures += 1
            state.not_before = self._clock() + pause * random.uniform(0.5, 1.0)

    def _answered(self, host: Host) -> None:
        with self._lock:
            self._states[host] = _ServerState()
            self._order.remove(host)
            self._order.insert(0, host)


def server_message(error: Exception) -> str:
    """The driver's message without the server's stack."""
    return " ".join(str(error).partition("Stack trace:")[0].split())[:300] or type(error).__name__


def _is_refusal(error: Exception) -> bool:
    return getattr(error, "code", None) in REFUSED or "CERTIFICATE_VERIFY_FAILED" in str(error)


def hint(error: Exception) -> str:
    """What the user can do about an error."""
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return "give the file with the CA of the server's certificate: clickhouses://...?ca_certs=FILE"
    if not isinstance(error, ServerException):
        return "check that the server runs and this is its native TCP port (9000, with TLS 9440)"
    if error.code == ErrorCodes.UNKNOWN_DATABASE:
        return "create the database with `rankscope migrate` or `rankscope collect`"
    if error.code in KEEPER_FAILED:
        return "check that ZooKeeper or ClickHouse Keeper of the cluster runs; nothing is lost"
    if error.code in TOO_FEW_REPLICAS:
        return "check that most replicas of each shard run; nothing is lost"
    if error.code in REFUSED:
        return "check user and password in clickhouse://user:password@host:9000/database, or RANKSCOPE_STORE_PASSWORD"
    return "see the server's log"
