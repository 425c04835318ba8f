"""Room for the records of one process: marks, samples, and the count of what is lost.

    segment 4  -->  segment 5  -->  scrap memory, while the sink has no segment  -->  segment 6

To reserve a place takes a few loads and stores with no call in between. The record is then packed before another thread
can run. So under the interpreter's lock two threads never take the same place, and at most the last record of a killed
process is torn. No method raises into the caller: records that cannot be kept are counted as dropped.
"""

import struct
import sys
import threading
from dataclasses import dataclass, field
from time import monotonic_ns
from typing import Any, Protocol

from telemetry.record import layout
from telemetry.record.dropped_spans import DroppedSpans, ForkedSpans, Reason
from telemetry.record.layout import RECORD_BYTES, RecordKind, name_bytes, pack_mark, pack_text, text_pieces

assert (sys.byteorder, struct.calcsize("l")) == ("little", 8), "rank files are written on 64-bit little-endian hosts"

SCRAP_RECORDS = 256
SAMPLE = struct.Struct("ld24sI12xII")


@dataclass(slots=True, kw_only=True)
class Place:
    """Room for records: from ``offset`` to ``limit`` of a writable buffer; the first is number ``first_seq``."""

    buffer: Any
    first_seq: int
    offset: int
    limit: int


@dataclass(slots=True, kw_only=True)
class Scrap(Place):
    """Room in memory. What is written there is lost."""

    buffer: Any = field(default_factory=lambda: bytearray(layout.RECORD_BYTES * SCRAP_RECORDS))
    first_seq: int = 0
    offset: int = 0
    limit: int = layout.RECORD_BYTES * SCRAP_RECORDS


class Sink(Protocol):
    """The source of room. Called on the recording threads, once in thousands of records."""

    @property
    def dropped(self) -> int:
        """Records lost after they were written."""

    def open_segment(self, first_seq: int) -> Place | None:
        """Room for the records from ``first_seq`` on, or None. Does not raise, nor wait for another process."""


def scrap_words() -> "memoryview[int]":
    """A state page without readers."""
    return memoryview(bytearray(layout.STATE_BYTES)).cast("q")


class RecordBuffer:
    """Writes records into the segments of a sink, and live counts into the state page ``words``. For any thread."""

    __slots__ = (
        *("words", "buffer", "offset", "limit", "step_number"),
        *("_sink", "_place", "_rolling", "_making_room", "_lost", "_forks", "_lost_in_forks", "_dropped_spans"),
    )

    buffer: Any
    offset: int
    limit: int

    def __init__(self) -> None:
        self.words = scrap_words()
        self.step_number = 0
        self._reset()

    def _reset(self) -> None:
        """Write into scrap memory, and count nothing."""
        self._sink: Sink | None = None
        self._lost = 0
        self._forks: ForkedSpans | None = None
        """Dropped spans of processes that this process forks during the recording."""
        self._lost_in_forks = 0
        self._dropped_spans: DroppedSpans | None = None
        self._rolling, self._making_room = threading.RLock(), False  # in a forked child another thread may have held it
        self._use(Scrap())

    def recording(self) -> bool:
        """Whether records are kept."""
        return self._sink is not None

    def mark(self, name: str, text: str = "") -> None:
        """Record an event that happens now."""
        try:
            head, pieces = name_bytes(name), text_pieces(text)
        except Exception:
            return self.lose(1)
        if (taken := self.reserve(1 + len(pieces))) is not None:
            into, place = taken
            records = pack_mark(monotonic_ns(), head, self.step_number, pieces, place)
            into[place : place + len(records)] = records

    def sample(self, metric: str, value: float, step: int | None = None) -> None:
        """Record a number with the current time. ``step``: the number of an earlier step, if it belongs to one."""
        try:
            name, number = name_bytes(metric), float(value)
            of_step = self.step_number if step is None else step & 0xFFFFFFFF
        except Exception:
            return self.lose(1)
        if (taken := self.reserve(1)) is not None:
            into, place = taken
            SAMPLE.pack_into(into, place, monotonic_ns(), number, name, of_step, RecordKind.SAMPLE, place)

    def reserve(self, count: int) -> tuple[Any, int] | None:
        """Buffer and place for ``count`` records in one segment. None if the records are lost."""
        if self.offset + count * RECORD_BYTES > self.limit:
            self._pad()
            if not self.roll():
                return None
        place = self.offset
        self.offset = place + count * RECORD_BYTES
        return self.buffer, place

    def _pad(self) -> None:
        """Fill the rest of the segment with empty records."""
        into, places = self.buffer, range(self.offset, self.limit, RECORD_BYTES)
        self.offset = self.limit
        for place in places:
            into[place : place + RECORD_BYTES] = pack_text(b"", place)

    def roll(self) -> bool:
        """Continue in the next segment, or in scrap memory. Other threads that need a segment wait meanwhile. Returns
        False, and the record is lost, if this thread already does so (garbage collection, a signal)."""
        with self._rolling:
            if self._making_room:
                self.lose(1)
                return False
            self._making_room = True
            try:
                if self.offset == self.limit:
                    self._use(self._next_place())
                    self.beat()
            finally:
                self._making_room = False
        return True

    def _next_place(self) -> Place:
        if self._sink is None:
            return Scrap()
        if isinstance(self._place, Scrap):
            self.lose(SCRAP_RECORDS)
        try:
            return self._sink.open_segment(self.next_seq()) or Scrap(first_seq=self.next_seq())
        except Exception:
            return Scrap(first_seq=self.next_seq())

    def _use(self, place: Place) -> None:
        self._place = place
        self.buffer, self.offset, self.limit = place.buffer, place.offset, place.limit

    def next_seq(self) -> int:
        """Number of the next record. Records in scrap memory have none."""
        if isinstance(self._place, Scrap):
            return self._place.first_seq
        return self._place.first_seq + (self.offset - self._place.offset) // RECORD_BYTES

    def lose(self, count: int) -> None:
        """Add to the number of dropped records."""
        if self._sink is not None:
            self._lost += count

    def drop(self, reason: Reason, stage: object) -> None:
        """Count one span of a stage as dropped, and report why. A span that is not nested cannot be recorded: another
        span may have overwritten its start."""
        self.lose(1)
        if self._dropped_spans is not None:
            self._dropped_spans.add(reason, stage)

    def dropped(self) -> int:
        """Records that were dropped, also by forked processes."""
        if self._sink is None:
            return self._lost + self._lost_in_forks
        in_scrap: int = self.offset // RECORD_BYTES if isinstance(self._place, Scrap) else 0
        return self._lost + self._lost_in_forks + in_scrap + self._sink.dropped

    def mark_dropped(self) -> None:
        """Mark the dropped spans that are not marked yet."""
        self.beat()
        if self._dropped_spans is not None:
            self._dropped_spans.flush()

    def beat(self) -> int:
        """Update the counts on the state page. Returns the time."""
        self.words[layout.WORD_BEAT] = now = monotonic_ns()
        self.words[layout.WORD_RECORDED] = self.next_seq()
        self._count_forked()
        self.words[layout.WORD_DROPPED] = self.dropped()
        return now

    def _count_forked(self) -> None:
        """Add the spans that forked processes dropped since the last call."""
        if self._forks is None or self._dropped_spans is None:
            return
        if (new := self._forks.total() - self._lost_in_forks) > 0:
            self._lost_in_forks += new
            self._dropped_spans.add_forked(new)
