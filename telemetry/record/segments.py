"""Segments of a rank file for readers: names, headers, committed records, and records as columns.

The ``decode_`` functions return columns named as in ``telemetry.tables``, in the order of the records. ``first_seq`` is
the number of the first record, ``to_wall_ns`` converts the times of records to wall time.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from telemetry.errors import UnreadableError
from telemetry.files.private_files import Folder
from telemetry.record import layout
from telemetry.record.layout import NAME_BYTES, RECORD_BYTES, SEGMENT_HEADER, TEXT_BYTES, RecordKind

SUFFIX = ".rec"
NEW_SUFFIX = ".rec.new"
GONE_SUFFIX = ".rec.gone"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentHeader:
    """The first bytes of a segment, in their order."""

    first_seq: int
    capacity: int
    sealed: bool
    anchor_monotonic_ns: int
    anchor_wall_ns: int

    @property
    def end_seq(self) -> int:
        """One past the last record that it can hold."""
        return self.first_seq + self.capacity

    def to_bytes(self) -> bytes:
        """The bytes in the file."""
        return SEGMENT_HEADER.pack(layout.SEGMENT_MAGIC, *astuple(self))


def list_segments(folder: Folder) -> list[str]:
    """Names of the segments, the oldest first."""
    return sorted(name for name in folder.names() if number_of(name) is not None)


def number_of(name: str) -> int | None:
    """The number of a segment; None for another file."""
    stem, dot, suffix = name.partition(".")
    return int(stem) if dot + suffix == SUFFIX and stem.isdecimal() and stem.isascii() else None


def read_header(folder: Folder, name: str) -> SegmentHeader:
    """The header of a segment.

    Raises:
        UnreadableError: the file is gone, too short, or starts with something else.
    """
    path = folder.path / name
    try:
        raw = folder.read(name, SEGMENT_HEADER.size)
    except OSError as error:
        raise UnreadableError(f"{path}: {error.strerror}", hint="check that no other agent uses this spool") from error
    if len(raw) < SEGMENT_HEADER.size or not raw.startswith(layout.SEGMENT_MAGIC):
        raise UnreadableError(
            f"{path} is not a segment of a rank file",
            hint="move the file out of the folder; the other segments can be read without it",
        )
    _, first_seq, capacity, sealed, monotonic_ns, wall_ns = SEGMENT_HEADER.unpack(raw)
    return SegmentHeader(
        first_seq=first_seq,
        capacity=capacity,
        sealed=bool(sealed),
        anchor_monotonic_ns=monotonic_ns,
        anchor_wall_ns=wall_ns,
    )


def read_records(
    folder: Folder, name: str, header: SegmentHeader, *, from_seq: int, max_records: int
) -> NDArray[np.void]:
    """Committed records from number ``from_seq`` on, up to the first one that is incomplete.

    Raises:
        UnreadableError: the file is gone.
    """
    skip = from_seq - header.first_seq
    path = folder.path / name
    assert skip >= 0, (path, from_seq)
    count = min(max_records, header.capacity - skip)
    offset = layout.HEADER_BYTES + skip * layout.RECORD_BYTES
    try:
        with os.fdopen(folder.open(name), "rb") as file:
            file.seek(offset)
            raw = file.read(max(0, count) * layout.RECORD_BYTES)
    except OSError as error:
        raise UnreadableError(f"{path}: {error.strerror}", hint="check that no other agent uses this spool") from error
    records = np.frombuffer(raw[: len(raw) - len(raw) % layout.RECORD_BYTES], layout.RECORD)
    places = offset + layout.RECORD_BYTES * np.arange(len(records))
    missing = np.flatnonzero(records["commit"] != places)
    return records[: missing[0]] if len(missing) else records


def committed_records(folder: Folder, name: str, header: SegmentHeader) -> int:
    """The number of committed records of a segment."""
    return len(read_records(folder, name, header, from_seq=header.first_seq, max_records=header.capacity))


def take_back(folder: Folder) -> bool:
    """Restore the names of segments that are being deleted. Returns whether there were any."""
    back = False
    for name in folder.names():
        if name.endswith(GONE_SUFFIX):
            with suppress(OSError):
                folder.rename(name, name.removesuffix(GONE_SUFFIX) + SUFFIX)
                back = True
    return back


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
    """At most ``max_records`` of ``records``. A mark stays with its texts: they are added, or the mark is left out."""
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
    """The joined texts. A character may be split between two of them."""
    pieces = zip(_bytes(records)[:, :TEXT_BYTES], records["text_length"], strict=True)
    return b"".join(row.tobytes()[: int(length)] for row, length in pieces).decode(errors="replace")


def _bytes(records: Records) -> NDArray[np.uint8]:
    return np.frombuffer(records.tobytes(), np.uint8).reshape(-1, RECORD_BYTES)
