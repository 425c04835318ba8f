"""Segments on disk for readers: names, headers, committed records."""

import os
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from telemetry.errors import UnreadableError
from telemetry.files.private_files import Folder
from telemetry.record import layout

SUFFIX = ".rec"
NEW_SUFFIX = ".rec.new"
GONE_SUFFIX = ".rec.gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentHeader:
    """The first bytes of a segment."""

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
        """As it stands in the file."""
        header = np.zeros(1, layout.SEGMENT_HEADER)
        header["magic"] = layout.SEGMENT_MAGIC
        for name in ("first_seq", "capacity", "sealed", "anchor_monotonic_ns", "anchor_wall_ns"):
            header[name] = getattr(self, name)
        return header.tobytes()


def list_segments(folder: Folder) -> list[str]:
    """Names of the segments, the oldest first."""
    return sorted(name for name in folder.names() if number_of(name) is not None)


def number_of(name: str) -> int | None:
    """The number of a segment; None for any other file."""
    stem, dot, suffix = name.partition(".")
    return int(stem) if dot + suffix == SUFFIX and stem.isdecimal() and stem.isascii() else None


def read_header(folder: Folder, name: str) -> SegmentHeader:
    """The header of a segment.

    Raises:
        UnreadableError: the file is gone, too short, or starts with something else.
    """
    path = folder.path / name
    try:
        raw = folder.read(name, layout.SEGMENT_HEADER.itemsize)
    except OSError as error:
        raise UnreadableError(f"{path}: {error.strerror}", hint="check that no other agent uses this spool") from error
    if len(raw) < layout.SEGMENT_HEADER.itemsize or not raw.startswith(layout.SEGMENT_MAGIC):
        raise UnreadableError(
            f"{path} is not a segment of a rank file",
            hint="move the file out of the folder; the other segments can be read without it",
        )
    header = np.frombuffer(raw, layout.SEGMENT_HEADER)[0]
    return SegmentHeader(
        first_seq=int(header["first_seq"]),
        capacity=int(header["capacity"]),
        sealed=bool(header["sealed"]),
        anchor_monotonic_ns=int(header["anchor_monotonic_ns"]),
        anchor_wall_ns=int(header["anchor_wall_ns"]),
    )


def read_records(
    folder: Folder, name: str, header: SegmentHeader, *, from_seq: int, max_records: int
) -> NDArray[np.void]:
    """Committed records from number ``from_seq`` on, up to the first one that is not there yet, or torn.

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
    """How many records of a segment are committed."""
    return len(read_records(folder, name, header, from_seq=header.first_seq, max_records=header.capacity))


def take_back(folder: Folder) -> bool:
    """Bring segments back into sight that are being deleted; whether there were any."""
    back = False
    for name in folder.names():
        if name.endswith(GONE_SUFFIX):
            with suppress(OSError):
                folder.rename(name, name.removesuffix(GONE_SUFFIX) + SUFFIX)
                back = True
    return back
