"""One connection to one server, by clickhouse-driver, with faster inserts.

A block of rows for a server. Whole columns are written as bytes; the driver would convert each value.

    info | columns, rows | name, type, a flag | values ... | name, type, a flag | values ... |

    numbers of the column's own type   memory of the array, unchanged
    one text for all rows              its length and bytes, repeated
    others                             converted by the driver

Arrow columns in the form that the driver expects:

    numbers, strings     NumPy arrays
    timestamp[ns]        NumPy integers: the driver sends a DateTime64(9) unchanged, in any time zone
    one text per chunk   RepeatedText
    map                  dicts
    list of these        lists
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from clickhouse_driver import Client
from clickhouse_driver.block import ColumnOrientedBlock
from clickhouse_driver.columns.service import write_column
from clickhouse_driver.defines import DBMS_MIN_REVISION_WITH_CUSTOM_SERIALIZATION
from clickhouse_driver.varint import write_varint
from clickhouse_driver.writer import write_binary_str, write_binary_uint8

from telemetry.stores.address import Host, ServerAddress, is_loopback

_NUMBERS = {f"{sign}Int{8 * size}": f"<{kind}{size}" for sign, kind in (("", "i"), ("U", "u")) for size in (1, 2, 4, 8)}
_NUMBERS["Float64"] = "<f8"


@dataclass(frozen=True, slots=True)
class RepeatedText:
    """A column of texts, each with the number of consecutive rows that have it."""

    runs: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> "RepeatedText | None":
        """The texts of a dictionary-encoded column whose chunks have one text each. None for other columns."""
        if not pa.types.is_dictionary(column.type) or any(len(chunk.dictionary) != 1 for chunk in column.chunks):
            return None
        return cls(tuple((chunk.dictionary[0].as_py(), len(chunk)) for chunk in column.chunks))

    def __len__(self) -> int:
        return sum(count for _, count in self.runs)

    def tobytes(self) -> bytes:
        """The bytes of a ``String`` column."""
        return b"".join(_text_bytes(text) * count for text, count in self.runs)


class BlockWriter:
    """Replaces the driver's writer of blocks.

    Args:
        out: the driver's writer.
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
            if _has_wire_format(items, kind):
                out.write(items.tobytes())
            else:
                write_column(context, name, kind, items, out)
        self._out.finalize()


def _has_wire_format(items: Any, kind: str) -> bool:
    if isinstance(items, RepeatedText):
        assert kind == "String", kind
        return True
    return isinstance(items, np.ndarray) and kind in _NUMBERS and items.dtype == np.dtype(_NUMBERS[kind])


def _text_bytes(text: str) -> bytes:
    """The length (seven bits in each byte, the lowest first), then UTF-8."""
    encoded = text.encode()
    length, rest = bytearray(), len(encoded)
    while rest >= 0x80:
        length.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes(length) + bytes([rest]) + encoded


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
"""A server that sends nothing for this time counts as lost. A running query reports progress much more often."""
KEEPALIVE = (60, 10, 3)
"""TCP keepalive: idle seconds, seconds between probes, number of probes. It detects a lost server between queries."""

# The driver logs a traceback for each refused connection; here that becomes one UnreachableError.
logging.getLogger("clickhouse_driver").addHandler(logging.NullHandler())


class UnconfirmedError(Exception):
    """Wraps an error of ``confirm``, so that it is not converted like an error of the driver."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(str(reason))
        self.reason = reason


class Connection(Client):  # type: ignore[misc]
    """The driver's client. It calls ``confirm`` after the server has asked for the rows, and before they are sent."""

    confirm: Callable[[], None] | None = None

    def send_data(self, sample_block: Any, data: Any, types_check: bool = False, columnar: bool = False) -> int:
        """Send the rows as one block, with :class:`BlockWriter`."""
        connection = self.connection
        drivers_writer = connection.block_out
        connection.block_out = BlockWriter(drivers_writer)
        try:
            # The second block is empty: it marks the end of the rows.
            for block in (ColumnOrientedBlock(sample_block.columns_with_types, data), ColumnOrientedBlock()):
                connection.send_data(block)
                self.receive_profile_events()
        finally:
            connection.block_out = drivers_writer
        return len(data[0])

    def receive_sample_block(self) -> Any:
        """Receive the first block of an insert. The server lists the insert in ``system.processes`` before it sends it.

        Raises:
            UnconfirmedError: ``confirm`` failed. The driver closes the connection, and the server drops the insert.
        """
        block = super().receive_sample_block()
        if self.confirm:
            try:
                self.confirm()
            except Exception as reason:
                raise UnconfirmedError(reason) from reason
        return block


def make_connection(address: ServerAddress, host: Host, *, database: str, use_numpy: bool = True) -> Connection:
    """A connection. It is opened at its first use. ``use_numpy``: columns are arrays. They cannot hold every type."""
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
        # On loopback, compression costs more time than it saves.
        compression=not is_loopback(host.name),
        connect_timeout=CONNECT_S,
        send_receive_timeout=ANSWER_S,
        tcp_keepalive=KEEPALIVE,
        settings={"use_numpy": use_numpy, "insert_block_size": 100_000_000},
    )
