"""The writer's end of a rank file: a folder of preallocated, memory-mapped segments.

    000000.rec  sealed  |  000001.rec  sealed  |  000002.rec  being written  |  000003.rec.new  being made
    ^ goes first when there is no room, unless it is in flight (shipping_page.py)

A segment is made under another name and renamed when its header stands, so a reader never sees half a one. Its room is
allocated when it is made: a full disk is an error here, which is counted, and never a SIGBUS in the training thread.
"""

import json
import mmap
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from telemetry.clocks.host import Anchor, measure_anchor
from telemetry.errors import RankscopeError
from telemetry.record import layout
from telemetry.record.segments import GONE_SUFFIX, committed_records, list_segments, read_header, take_back
from telemetry.record.shipping_page import LossCause, ShippingPage, read_acked
from telemetry.records import RankIdentity

META_NAME = "meta.json"
SEGMENT_RECORDS = 16384
MAX_SEGMENTS = 16
MIN_SEGMENTS = 3
"""The one being written and one that is in flight are never removed."""
MADV_POPULATE_WRITE = 23
"""Python has no name for it."""


@dataclass(slots=True, kw_only=True)
class Segment:
    """One segment, mapped for writing: records lie from ``offset`` to ``limit``."""

    path: Path
    buffer: mmap.mmap
    first_seq: int
    offset: int
    limit: int

    @property
    def end_seq(self) -> int:
        """One past the last record that it can hold."""
        return self.first_seq + (self.limit - self.offset) // layout.RECORD_BYTES


class RankFile:
    """Segments of one rank. One thread makes them, one goes on in them.

    Continues the numbering where the folder holds records already (a rank that stopped and started again). ``anchor``
    ties all of its segments to wall time: a step of the wall clock under way moves no record past another.

    Raises:
        OSError: the folder cannot be written.
    """

    def __init__(
        self,
        folder: Path,
        *,
        anchor: Anchor | None = None,
        segment_records: int = SEGMENT_RECORDS,
        max_segments: int = MAX_SEGMENTS,
    ) -> None:
        self.folder = folder
        self._anchor = anchor or measure_anchor()
        self._page = ShippingPage(folder)
        self.dropped = 0
        """Records lost with segments that were removed to make room."""
        self._segment_records = segment_records
        self._max_segments = max(max_segments, MIN_SEGMENTS)
        self._current: Segment | None = None
        self.next_seq, self._number = self._resume()

    def open_segment(self, first_seq: int) -> Segment | None:
        """The next segment, made here and now; None where there is no room for one, or no folder."""
        segment = self.make(first_seq)
        if segment is not None:
            self.seal_and_go_on_in(segment)
        return segment

    def make(self, first_seq: int) -> Segment | None:
        """A segment for the records from ``first_seq`` on; None where there is no room for one, or no folder. At the
        cap, and on a full disk, the oldest one makes room for it."""
        try:
            if not self._keep_below_cap():
                return None
            try:
                return self._create(first_seq)
            except OSError:
                return self._create(first_seq) if self._remove_oldest(LossCause.DISK_FULL) else None
        except OSError:
            return None

    def seal_and_go_on_in(self, segment: Segment) -> None:
        """The current segment gets no more records; this one does. Writes memory only."""
        if self._current is not None:
            _write_header(self._current.buffer, sealed=1)
        self._current = segment

    def discard(self, segment: Segment) -> None:
        """Remove a segment that was made and never written."""
        segment.path.unlink(missing_ok=True)

    def close(self, next_seq: int) -> None:
        """Says in the header how many records the last segment holds, and seals it.

        Raises:
            OSError, UnreadableError: it is gone.
        """
        if self._current is not None:
            _finish(self._current.path, next_seq - self._current.first_seq)
        self._current = None

    def _resume(self) -> tuple[int, int]:
        """Number of the next record and of the next segment, after what the folder holds and can be read; where all
        was shipped and deleted, after what was acknowledged."""
        take_back(self.folder)
        segments = list_segments(self.folder)
        next_number = int(segments[-1].stem) + 1 if segments else 0
        next_seq = 0
        for path in reversed(segments):
            with suppress(RankscopeError, OSError):  # the agent may reclaim it under our eyes
                header = read_header(path)
                count = committed_records(path, header)
                next_seq = header.first_seq + count
                if count:
                    _finish(path, count)
                    break
                path.unlink(missing_ok=True)  # made ahead, and never written
        return max(next_seq, read_acked(self.folder)), next_number

    def _keep_below_cap(self) -> bool:
        """Whether there is room for one more."""
        excess = len(list_segments(self.folder)) + 1 - self._max_segments
        return all(self._remove_oldest(LossCause.CAP) for _ in range(excess))

    def _remove_oldest(self, cause: LossCause) -> bool:
        """Remove the oldest segment that is neither in flight nor being written."""
        return any(self._remove(path, cause) for path in list_segments(self.folder)[:-1])

    def _remove(self, path: Path, cause: LossCause) -> bool:
        """Delete a segment and count what it held, unless the agent is at work on it."""
        first_seq, end_seq = _numbers(path)
        if self._page.in_flight(first_seq, end_seq):
            return False
        gone = path.with_suffix(GONE_SUFFIX)
        try:
            path.rename(gone)
        except FileNotFoundError:
            return True  # acknowledged, and reclaimed just now
        try:
            if self._page.in_flight(first_seq, end_seq):  # pinned meanwhile: perhaps it was read before it moved
                gone.rename(path)
                return False
            self._page.lose(end_seq, cause)
            gone.unlink()
        except FileNotFoundError:
            return False  # the agent has taken it back
        self.dropped += max(0, end_seq - max(first_seq, self._page.acked))
        return True

    def _create(self, first_seq: int) -> Segment:
        size = layout.HEADER_BYTES + self._segment_records * layout.RECORD_BYTES
        path = self.folder / f"{self._number:06d}.rec"
        buffer = _map_new(path.with_suffix(".rec.new"), size)
        _write_header(
            buffer,
            magic=layout.SEGMENT_MAGIC,
            first_seq=first_seq,
            capacity=self._segment_records,
            anchor_monotonic_ns=self._anchor.monotonic_ns,
            anchor_wall_ns=self._anchor.wall_ns,
        )
        path.with_suffix(".rec.new").rename(path)
        self._number += 1
        return Segment(path=path, buffer=buffer, first_seq=first_seq, offset=layout.HEADER_BYTES, limit=size)


def write_identity(folder: Path, identity: RankIdentity) -> None:
    """Write ``meta.json``, whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    new = folder / (META_NAME + ".new")
    new.write_text(json.dumps(asdict(identity), indent=1))
    new.rename(folder / META_NAME)


def _map_new(path: Path, size: int) -> mmap.mmap:
    """A zeroed file of ``size`` bytes, allocated, mapped and in memory: the hot path meets no page fault."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        os.posix_fallocate(fd, 0, size)
        buffer = mmap.mmap(fd, size)
        with suppress(OSError, ValueError):  # Linux before 5.14 knows no such advice: pages then come one by one
            buffer.madvise(MADV_POPULATE_WRITE)
        return buffer
    except OSError:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(fd)


def _numbers(path: Path) -> tuple[int, int]:
    """The first record of a segment and one past the last; of what is no segment, none."""
    try:
        header = read_header(path)
    except RankscopeError:
        return 0, 0
    return header.first_seq, header.end_seq


def _write_header(buffer: mmap.mmap, **fields: object) -> None:
    header = np.frombuffer(buffer, layout.SEGMENT_HEADER, count=1)
    for name, value in fields.items():
        header[name] = value


def _finish(path: Path, count: int) -> None:
    """Seal a segment of another life, or the last of this one: it holds ``count`` records and gets no more."""
    header = replace(read_header(path), capacity=count, sealed=True)
    with path.open("r+b") as file:
        file.write(header.to_bytes())
