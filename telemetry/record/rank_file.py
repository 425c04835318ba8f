"""The writer of a rank file: a folder of preallocated, memory-mapped segments.

    000000.rec  sealed  |  000001.rec  sealed  |  000002.rec  being written  |  000003.rec.new  being made
    ^ deleted first if there is no room, unless it is in flight (shipping_page.py)

A segment is made under another name, and renamed once its header is complete. So a reader never sees a partial segment.
Its room is allocated when it is made. So a full disk causes an error here, which is counted, and no SIGBUS in the
training thread. A thread makes segments before they are needed, because the disk may be slow:

    recorder   |---- segment 4 ----|---- segment 5 ----|---        takes the prepared segment: microseconds
    maker       makes 5             makes 6             ...        waits for the disk
"""

import mmap
import os
import threading
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue

from telemetry.errors import RankscopeError
from telemetry.files.private_files import Folder, open_folder
from telemetry.record import layout
from telemetry.record.clocks.interface import Anchor, measure_anchor
from telemetry.record.record_buffer import Place
from telemetry.record.segments import (
    GONE_SUFFIX,
    NEW_SUFFIX,
    SUFFIX,
    SegmentHeader,
    committed_records,
    list_segments,
    number_of,
    read_header,
    take_back,
)
from telemetry.record.shipping_page import LossCause, ShippingPage, read_acked
from telemetry.settings import MAX_SEGMENTS

SEGMENT_RECORDS = 16384
MIN_SEGMENTS = 3
"""A segment being written, a segment in flight, and one more. The first two are never removed."""
MADV_POPULATE_WRITE = 23
"""The advice of madvise(2). Python has no constant for it."""
PATIENCE_S = 0.02
"""How long the recording thread waits once for a segment that is late. After that it drops and counts records."""
STOP_S = 1.0


@dataclass(slots=True, kw_only=True)
class Segment(Place):
    """One segment, mapped for writing."""

    name: str

    @property
    def end_seq(self) -> int:
        """One past the last record that it can hold."""
        return self.first_seq + (self.limit - self.offset) // layout.RECORD_BYTES


class RankFile:
    """Segments of one rank. One thread makes them, and one writes into them.

    Continues the numbering if the folder contains records already (a rank that stopped and started again). ``anchor``
    converts the times of all segments to wall time, so that a step of the wall clock does not change their order.

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
        """The next segment, made at once. None if there is no room for it, or no folder."""
        segment = self.make(first_seq)
        if segment is not None:
            self.seal_and_go_on_in(segment)
        return segment

    def make(self, first_seq: int) -> Segment | None:
        """A segment for the records from ``first_seq`` on. None if there is no room for it, or no folder. At the limit,
        and on a full disk, the oldest segment is deleted."""
        try:
            with self._opened() as folder:
                if not self._keep_below_cap(folder):
                    return None
                try:
                    return self._create(folder, first_seq)
                except OSError:
                    return self._create(folder, first_seq) if self._remove_oldest(folder, LossCause.DISK_FULL) else None
        except OSError:
            return None

    def seal_and_go_on_in(self, segment: Segment) -> None:
        """Seal the current segment, and continue in this one. Writes memory only."""
        if self._current is not None:
            self._current.buffer[layout.SEALED_OFFSET] = 1
        self._current = segment

    def discard(self, segment: Segment) -> None:
        """Remove a segment that was made and never written."""
        with suppress(OSError), self._opened() as folder:
            folder.remove(segment.name)

    def close(self, next_seq: int) -> None:
        """Write the number of records into the header of the last segment, and seal it.

        Raises:
            OSError, UnreadableError: it was deleted.
        """
        if self._current is not None:
            with self._opened() as folder:
                _finish(folder, self._current.name, next_seq - self._current.first_seq)
        self._current = None

    def _resume(self) -> tuple[int, int]:
        """Number of the next record and of the next segment: after the readable records in the folder. If all were
        shipped and deleted, after the acknowledged records. A folder without an identity and segments is new."""
        with self._opened() as folder:
            take_back(folder)
            segments = list_segments(folder)
            if not segments and layout.META_NAME not in folder.names():
                self._page.begin()
            next_number = (number_of(segments[-1]) or 0) + 1 if segments else 0
            next_seq = 0
            for name in reversed(segments):
                with suppress(RankscopeError, OSError):  # the agent may reclaim it at the same time
                    header = read_header(folder, name)
                    count = committed_records(folder, name, header)
                    next_seq = header.first_seq + count
                    if count:
                        _finish(folder, name, count)
                        break
                    folder.remove(name)  # made ahead, and never written
        return max(next_seq, read_acked(self.folder)), next_number

    def _opened(self) -> AbstractContextManager[Folder]:
        return open_folder(self.folder, below=layout.RANK_FOLDER_DEPTH)

    def _keep_below_cap(self, folder: Folder) -> bool:
        """Whether there is room for another segment."""
        excess = len(list_segments(folder)) + 1 - self._max_segments
        return all(self._remove_oldest(folder, LossCause.CAP) for _ in range(excess))

    def _remove_oldest(self, folder: Folder, cause: LossCause) -> bool:
        """Remove the oldest segment that is neither in flight nor being written."""
        return any(self._remove(folder, name, cause) for name in list_segments(folder)[:-1])

    def _remove(self, folder: Folder, name: str, cause: LossCause) -> bool:
        """Delete a segment and count its records, unless the agent sends it."""
        first_seq, end_seq = _numbers(folder, name)
        if self._page.in_flight(first_seq, end_seq):
            return False
        gone = name.removesuffix(SUFFIX) + GONE_SUFFIX
        try:
            folder.rename(name, gone)
        except FileNotFoundError:
            return True  # the agent has just deleted it
        try:
            if self._page.in_flight(first_seq, end_seq):  # pinned meanwhile: perhaps it was read before it moved
                folder.rename(gone, name)
                return False
            self._page.lose(end_seq, cause)
            folder.remove(gone)
        except FileNotFoundError:
            return False  # the agent has taken it back
        self.dropped += max(0, end_seq - max(first_seq, self._page.acked))
        return True

    def _create(self, folder: Folder, first_seq: int) -> Segment:
        size = layout.HEADER_BYTES + self._segment_records * layout.RECORD_BYTES
        stem = f"{self._number:06d}"
        header = SegmentHeader(
            first_seq=first_seq,
            capacity=self._segment_records,
            sealed=False,
            anchor_monotonic_ns=self._anchor.monotonic_ns,
            anchor_wall_ns=self._anchor.wall_ns,
        ).to_bytes()
        buffer = _map_new(folder, stem + NEW_SUFFIX, size)
        buffer[: len(header)] = header
        folder.rename(stem + NEW_SUFFIX, stem + SUFFIX)
        self._number += 1
        return Segment(name=stem + SUFFIX, buffer=buffer, first_seq=first_seq, offset=layout.HEADER_BYTES, limit=size)


class SegmentsAhead:
    """A ``Sink`` over a rank file. Each segment except the first is made while the segment before it fills."""

    def __init__(self, rank_file: RankFile, *, patience_s: float = PATIENCE_S) -> None:
        self._rank_file = rank_file
        self._patience_s = patience_s
        self._wanted: SimpleQueue[int | None] = SimpleQueue()
        self._made = threading.Event()
        self._ready: Segment | None = None
        self._late = False
        self._maker = threading.Thread(target=self._make, name="rankscope-segments", daemon=True)

    @property
    def dropped(self) -> int:
        """Records lost with segments that were removed to make room."""
        return self._rank_file.dropped

    def open_segment(self, first_seq: int) -> Segment | None:
        """The prepared segment. None if it is late or could not be made: a later call may return it."""
        if not self._maker.ident:
            self._maker.start()
            return self._hand_out(self._rank_file.make(first_seq), first_seq)
        if not self._made.wait(0 if self._late else self._patience_s):
            self._late = True
            return None
        self._late = False
        segment, self._ready = self._ready, None
        return self._hand_out(segment, first_seq)

    def stop(self) -> None:
        """Stop making segments, and remove the prepared one."""
        self._wanted.put(None)
        self._maker.join(STOP_S)
        if self._ready is not None:
            self._rank_file.discard(self._ready)

    def close(self, next_seq: int) -> None:
        """Seal the last segment at ``next_seq``.

        Raises:
            OSError, UnreadableError: it was deleted.
        """
        self._rank_file.close(next_seq)

    def _hand_out(self, segment: Segment | None, first_seq: int) -> Segment | None:
        self._made.clear()
        if segment is not None:
            self._rank_file.seal_and_go_on_in(segment)
        self._wanted.put(first_seq if segment is None else segment.end_seq)
        return segment

    def _make(self) -> None:
        while (first_seq := self._wanted.get()) is not None:
            self._ready = self._rank_file.make(first_seq)
            self._made.set()


def _map_new(folder: Folder, name: str, size: int) -> mmap.mmap:
    """A zeroed file of ``size`` bytes, allocated, mapped and in memory, so that the hot path has no page faults."""
    fd = folder.make(name)
    try:
        os.posix_fallocate(fd, 0, size)
        buffer = mmap.mmap(fd, size)
        with suppress(OSError, ValueError):  # Linux before 5.14 lacks this advice: pages are then loaded one by one
            buffer.madvise(MADV_POPULATE_WRITE)
        return buffer
    except OSError:
        with suppress(OSError):
            folder.remove(name)
        raise
    finally:
        os.close(fd)


def _numbers(folder: Folder, name: str) -> tuple[int, int]:
    """The first record of a segment and one past the last. Equal if it is no segment."""
    try:
        header = read_header(folder, name)
    except RankscopeError:
        return 0, 0
    return header.first_seq, header.end_seq


def _finish(folder: Folder, name: str, count: int) -> None:
    """Seal a segment with ``count`` records: one of an earlier process, or the last one of this process."""
    header = replace(read_header(folder, name), capacity=count, sealed=True)
    with os.fdopen(folder.open(name, os.O_RDWR), "r+b") as file:
        file.write(header.to_bytes())
