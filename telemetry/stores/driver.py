"""One connection to one server, by clickhouse-driver, with faster inserts.

A block of rows for a server: columns are written as bytes at once, where the driver would convert each value.

    info | columns, rows | name, type, a flag | values ... | name, type, a flag | values ... |

    numbers of the column's own type   their memory, as it is
    a text for all rows                its length and bytes, repeated
    anything else                      by the driver

Arrow columns in the form that the driver expects:

    numbers, strings     NumPy arrays
    timestamp[ns]        NumPy integers: the driver sends a DateTime64(9) unchanged, in any time zone
    one text a chunk     RepeatedText
    map                  dicts
    list of any of them  lists
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

import numpy as np
import pyarrow as pa
from clickhouse_driver import Client
from clickhouse_driver.block import ColumnOrientedBlock
from clickhouse_driver.columns.service import write_column
from clickhouse_driver.defines import DBMS_MIN_REVISION_WITH_CUSTOM_SERIALIZATION
from clickhouse_driver.varint import write_varint
from clickhouse_driver.writer import write_binary_str, write_binary_uint8

from telemetry.stores.address import Host, ServerAddress

_NUMBERS = {f"{sign}Int{8 * size}": f"<{kind}{size}" for sign, kind in (("", "i"), ("U", "u")) for size in (1, 2, 4, 8)}
_NUMBERS["Float64"] = "<f8"


@dataclass(frozen=True, slots=True)
class RepeatedText:
    """A column of texts, each for so many rows in a row."""

    runs: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> "RepeatedText | None":
        """A dictionary-encoded column whose chunks have one text each; None of any other."""
        if not pa.types.is_dictionary(column.type) or any(len(chunk.dictionary) != 1 for chunk in column.chunks):
            return None
        return cls(tuple((chunk.dictionary[0].as_py(), len(chunk)) for chunk in column.chunks))

    def __len__(self) -> int:
        return sum(count for _, count in self.runs)

    def tobytes(self) -> bytes:
        """Of a ``String`` column."""
        return b"".join(_text_bytes(text) * count for text, count in self.runs)


class BlockWriter:
    """Stands in for the driver's own writer of blocks.

    Args:
        out: that writer.
    """

    def __init__(self, out: Any) -> None:
        self._out = out

    def write(self, block: Any) -> None:
        out, context = self._out.fout, self._out.context
        block.info.write(out)
        write_varint(block.num_columns, out)
        write_varint(block.num_rows, out)
        for (name, kind), items in zip(block.columns_with_types, block.data, strict=True):
            write_binary_str(name, out)
            write_binary_str(kind, out)
            if context.server_info.used_revision >= DBMS_MIN_REVISION_WITH_CUSTOM_SERIALIZATION:
                write_binary_uint8(0, out)
            if _is_ready(items, kind):
                out.write(items.tobytes())
            else:
                write_column(context, name, kind, items, out)
        self._out.finalize()


def _is_ready(items: Any, kind: str) -> bool:
    if isinstance(items, RepeatedText):
        assert kind == "String", kind
        return True
    return isinstance(items, np.ndarray) and kind in _NUMBERS and items.dtype == np.dtype(_NUMBERS[kind])


def _text_bytes(text: str) -> bytes:
    """Length, seven bits a byte with the lowest first, then UTF-8."""
    encoded = text.encode()
    length, left = bytearray(), len(encoded)
    while left >= 0x80:
        length.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes(length) + bytes([left]) + encoded


def native(column: pa.ChunkedArray) -> Any:
    """``column`` for ``execute(..., columnar=True)`` of a client with ``use_numpy``."""
    if repeated := RepeatedText.of(column):
        return repeated
    plain = column.cast(_without_timestamps(column.type))
    if pa.types.is_nested(column.type):
        return [_with_dicts(value, column.type) for value in plain.to_pylist()]
    values = plain.to_numpy(zero_copy_only=False)
    return values.astype(object) if values.dtype.kind in "US" else np.ascontiguousarray(values)


def _without_timestamps(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_list(kind):
        return pa.list_(_without_timestamps(kind.value_type))
    return pa.int64() if pa.types.is_timestamp(kind) else kind


def _with_dicts(value: Any, kind: pa.DataType) -> Any:
    if pa.types.is_map(kind):
        return dict(value)
    return [_with_dicts(part, kind.value_type) for part in value] if pa.types.is_map(kind.value_type) else value


CONNECT_S = 5.0
ANSWER_S = 60.0
"""Silence of the server that counts as gone; a running query reports progress much more often."""
KEEPALIVE = (60, 10, 3)
"""Idle seconds, then seconds between probes, and how many: a server that vanished is noticed while nothing is asked."""

# The driver logs a traceback for each refused connection; here that becomes one UnreachableError.
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
