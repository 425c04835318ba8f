"""From records to columns: pure functions over an array of ``layout.RECORD``.

Each returns columns named as in ``telemetry.tables``, in the order of the records. ``first_seq`` is the number of the
first record, ``to_wall_ns`` converts the records' times to wall time. Names and texts have a fixed size in records.
"""

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from telemetry.record.layout import MAX_TEXT_BYTES, NAME_BYTES, RECORD_BYTES, TEXT_BYTES, RecordKind

MARK = struct.Struct("l8x24sI4xI4xII")
TEXT = struct.Struct("40s16xII")


def name_bytes(name: str) -> bytes:
    """The first bytes of a name, cut between characters."""
    raw = name.encode(errors="replace")
    return raw if len(raw) <= NAME_BYTES else raw[:NAME_BYTES].decode(errors="ignore").encode()


def text_pieces(text: str) -> list[bytes]:
    """What fits of a text, in pieces of a record each; a character may lie across two."""
    raw = text.encode(errors="replace")[:MAX_TEXT_BYTES].decode(errors="ignore").encode()
    return [raw[start : start + TEXT_BYTES] for start in range(0, len(raw), TEXT_BYTES)]


def pack_mark(at_ns: int, name: bytes, step: int, pieces: list[bytes], place: int) -> bytes:
    """A mark and its texts, as they stand from byte ``place`` of a segment on."""
    mark = MARK.pack(at_ns, name, step, len(pieces), RecordKind.MARK, place)
    texts = (pack_text(piece, place + RECORD_BYTES * number) for number, piece in enumerate(pieces, start=1))
    return mark + b"".join(texts)


def pack_text(piece: bytes, place: int) -> bytes:
    """A text record at byte ``place`` of a segment; an empty one is padding."""
    return TEXT.pack(piece, RecordKind.TEXT | len(piece) << 24, place)


Records = NDArray[np.void]
Columns = dict[str, Any]
ToWall = Callable[[Any], Any]
SPAN_FIELDS = (
    "stage",
    "stream",
    "step",
    "microbatch",
    "chunk",
    "peer",
    "op_seq",
    "duration_ns",
    "cpu_ns",
    "size_bytes",
)


def decode_spans(records: Records, first_seq: int, to_wall_ns: ToWall) -> Columns:
    """Spans: NumPy columns ``seq``, those of the record, ``clock``, and ``start_ns`` and ``issue_ns`` as
    wall time."""
    at, spans = _of_kind(records, RecordKind.SPAN)
    issued = spans["issue_ns"]
    columns: Columns = {name: spans[name] for name in SPAN_FIELDS}
    columns["seq"] = (at + first_seq).astype(np.uint64)
    columns["start_ns"] = to_wall_ns(spans["start_ns"])
    columns["clock"] = spans["text_length"]  # no text in a span
    columns["issue_ns"] = np.where(issued > 0, to_wall_ns(issued), 0)
    return columns


def decode_samples(records: Records, first_seq: int, to_wall_ns: ToWall) -> Columns:
    """Samples: columns ``seq``, ``step``, ``at_ns``, ``metric`` (list of str), ``value``."""
    at, samples = _of_kind(records, RecordKind.SAMPLE)
    return {
        "seq": (at + first_seq).astype(np.uint64),
        "step": samples["step"],
        "at_ns": to_wall_ns(samples["start_ns"]),
        "metric": _names(samples),
        "value": np.ascontiguousarray(samples["duration_ns"]).view("<f8"),
    }


def decode_marks(records: Records, first_seq: int, to_wall_ns: ToWall) -> Columns:
    """Marks with their texts: columns ``seq``, ``step``, ``at_ns``, ``name``, ``text`` (lists of str)."""
    at, marks = _of_kind(records, RecordKind.MARK)
    return {
        "seq": (at + first_seq).astype(np.uint64),
        "step": marks["step"],
        "at_ns": to_wall_ns(marks["start_ns"]),
        "name": _names(marks),
        "text": [
            _text(records[index + 1 : index + 1 + count]) for index, count in zip(at, marks["op_seq"], strict=True)
        ],
    }


def whole_marks(records: Records, max_records: int) -> Records:
    """At most ``max_records`` of them, but never a mark without its texts: those come along, or the mark waits."""
    marks = np.flatnonzero(records["kind"][:max_records] == RecordKind.MARK)
    if not len(marks):
        return records[:max_records]
    last = int(marks[-1])
    end = last + 1 + int(records["op_seq"][last])
    if end > len(records):
        return records[:last]
    return records[: max(end, max_records)]


def _of_kind(records: Records, kind: RecordKind) -> tuple[NDArray[np.int64], Records]:
    at = np.flatnonzero(records["kind"] == kind)
    return at, records[at]


def _names(records: Records) -> list[str]:
    """The name in bytes 16..40 of each record."""
    raw = _bytes(records)[:, 16 : 16 + NAME_BYTES]
    return [row.tobytes().rstrip(b"\0").decode(errors="replace") for row in raw]


def _text(records: Records) -> str:
    """The texts joined; a character may lie across two of them."""
    pieces = zip(_bytes(records)[:, :TEXT_BYTES], records["text_length"], strict=True)
    return b"".join(row.tobytes()[: int(length)] for row, length in pieces).decode(errors="replace")


def _bytes(records: Records) -> NDArray[np.uint8]:
    return np.frombuffer(records.tobytes(), np.uint8).reshape(-1, RECORD_BYTES)
