"""Arrow IPC from outside, read so that nothing it declares is believed before it is checked.

    | FFFFFFFF | metadata length | metadata: a flatbuffer | body: buffers |   schema first, then record batches
                                     Message: slot 1 kind, slot 2 header
                                     RecordBatch: slot 3 compression

Only the agreed columns are read, so no type of Arrow's but theirs is ever decoded. Packed buffers are refused: a few
bytes may declare, and unpack to, any number.
"""

import struct
from collections.abc import Iterator

import pyarrow as pa

from telemetry.errors import UsageError

_HINT = "agent and collector should be of the same version"


def read_rows(body: bytes, columns: pa.Schema, what: str) -> pa.Table:
    """The rows of a stream, with its metadata; its columns are ``columns``, and every value is sound.

    Raises:
        UsageError: it is no stream, is cut off, has other columns or packed buffers.
    """
    try:
        messages = iter(pa.ipc.MessageReader.open_stream(body))
        told = pa.ipc.read_schema(_first(messages))
        if not told.equals(columns, check_metadata=False):
            raise UsageError(f"columns of {what} are not as agreed", hint=_HINT)
        rows = pa.Table.from_batches([_batch(message, told) for message in messages], schema=told)
        rows.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, EOFError, struct.error, MemoryError) as error:
        text = str(error).partition("\n")[0][:200]
        raise UsageError(f"not an Arrow IPC stream: {text}", hint=_HINT) from error
    return rows


def _first(messages: Iterator[pa.ipc.Message]) -> pa.ipc.Message:
    """The schema's message. The library takes the caller's word for what kind a message is."""
    first = next(messages, None)
    if first is None:
        raise ValueError("there is nothing in it")
    if first.type != "schema":
        raise ValueError(f"it begins with {first.type}")
    return first


def _batch(message: pa.ipc.Message, schema: pa.Schema) -> pa.RecordBatch:
    if message.type != "record batch":
        raise ValueError(f"{message.type} among the record batches")
    if _is_packed(memoryview(message.metadata)):
        raise ValueError("its buffers are packed: send them as they are")
    return pa.ipc.read_record_batch(message, schema)


def _is_packed(metadata: memoryview) -> bool:
    """Whether a record batch says that its buffers are compressed."""
    message = struct.unpack_from("<I", metadata, 0)[0]
    header = _slot(metadata, message, 2)
    if not header:
        raise ValueError("a message without a header")
    return bool(_slot(metadata, header + struct.unpack_from("<I", metadata, header)[0], 3))


def _slot(buffer: memoryview, table: int, slot: int) -> int:
    """Where a field of a flatbuffer's table is; 0: it has none."""
    fields = table - struct.unpack_from("<i", buffer, table)[0]
    size, place = struct.unpack_from("<H", buffer, fields)[0], 4 + 2 * slot
    offset = struct.unpack_from("<H", buffer, fields + place)[0] if place < size else 0
    return table + offset if offset else 0
