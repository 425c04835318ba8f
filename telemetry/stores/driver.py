"""One connection to one server, by clickhouse-driver: what is asked of it differently than it does by itself."""

import logging
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any

from clickhouse_driver import Client
from clickhouse_driver.block import ColumnOrientedBlock

from telemetry.stores.address import Host, ServerAddress
from telemetry.stores.native_block import BlockWriter

CONNECT_S = 5.0
ANSWER_S = 60.0
"""Silence of the server that counts as gone; a running query reports progress much more often."""
KEEPALIVE = (60, 10, 3)
"""Idle seconds, then seconds between probes, and how many: a server that vanished is noticed while nothing is asked."""

# The driver logs a traceback for each refused connection; here that is an UnreachableError, told once.
logging.getLogger("clickhouse_driver").addHandler(logging.NullHandler())


class UnconfirmedError(Exception):
    """Carries what a ``confirm`` raised past whoever translates the driver's errors."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(str(reason))
        self.reason = reason


class Connection(Client):  # type: ignore[misc]
    """The driver's client, that asks ``confirm`` between the server's "send the rows" and the rows."""

    confirm: Callable[[], None] | None = None

    def send_data(self, sample_block: Any, data: Any, types_check: bool = False, columnar: bool = False) -> int:
        """Rows go out as one block, and by our own way: ``native_block.py``."""
        connection = self.connection
        drivers = connection.block_out
        connection.block_out = BlockWriter(drivers)
        try:
            # The second block, which is empty, says that these were all.
            for block in (ColumnOrientedBlock(sample_block.columns_with_types, data), ColumnOrientedBlock()):
                connection.send_data(block)
                self.receive_profile_events()
        finally:
            connection.block_out = drivers
        return len(data[0])

    def receive_sample_block(self) -> Any:
        """The server has put the insert into ``system.processes`` before it sends this block.

        Raises:
            UnconfirmedError: the driver drops the connection then, and the server the insert.
        """
        block = super().receive_sample_block()
        if self.confirm:
            try:
                self.confirm()
            except Exception as reason:
                raise UnconfirmedError(reason) from reason
        return block


def make_connection(address: ServerAddress, host: Host, *, database: str) -> Connection:
    """A connection that is opened when it is first used."""
    return Connection(
        host.name,
        port=host.port,
        user=address.user,
        password=address.password,
        database=database,
        secure=address.secure,
        verify=address.verify,
        ca_certs=address.ca_certs,
        client_name="rankscope",
        # Packing costs more than it saves where the wire is memory.
        compression=not is_loopback(host.name),
        connect_timeout=CONNECT_S,
        send_receive_timeout=ANSWER_S,
        tcp_keepalive=KEEPALIVE,
        settings={"use_numpy": True, "insert_block_size": 100_000_000},
    )


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
