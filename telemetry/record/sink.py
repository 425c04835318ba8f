"""Parts of the recorder: where its room comes from, and the functions it exports.

Spans that cannot be recorded are counted by reason and stage, reported on stderr, and marked in the store:

    span dropped --> count --> 1st, 2nd, 4th, 8th ... and the end of the session: a mark with the number since the last
                        `--> the first of a reason in this process: one line on stderr

    forked process --> count in a page that it shares with its parent --> the parent's count, at each step

Nothing here raises or waits. It runs only when a span is dropped.
"""

import mmap
import os
import select
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from telemetry.printable import one_line
from telemetry.record import layout
from telemetry.record.clocks.interface import DeviceClock, DeviceSpan
from telemetry.records import SPANS_DROPPED
from telemetry.stages import Stage

MAX_KEYS = 64
"""Pairs of reason and stage that are counted apart; what comes later is counted together."""
ANY = "any stage"
STDERR = 2
NUM_SLOTS = 63
"""Words of a shared page after the first, by process id: two forked processes rarely add to the same one at once."""


class Reason(StrEnum):
    """Why a span was dropped, and what to do."""

    NOT_NESTED = (
        "a span of another thread or asyncio task overlapped it: use rankscope.record_span(stage, start_ns, "
        "duration_ns) there"
    )
    TOO_DEEP = (
        "too many spans were open at once: close each span, and use rankscope.record_span in generators and tasks"
    )
    NO_NUMBER = "the number of the step is not an integer: use rankscope.step(number)"
    UNKNOWN_STAGE = "no such stage: see rankscope.Stage"
    CAPTURED = "it began or ended in the capture of a CUDA graph, where no work runs: put it around the graph's replay"
    FORKED = (
        "a forked process, such as a DataLoader worker, does not record: put a span around the wait for its result in "
        "the process that called rankscope.start"
    )


_reported: set[Reason] = set()
"""In this process."""


class DroppedSpans:
    """The dropped spans of one process. For any thread."""

    def __init__(self, mark: Callable[[str, str], None]) -> None:
        self._mark = mark
        self._totals: Counter[tuple[Reason, str]] = Counter()
        self._unmarked: Counter[tuple[Reason, str]] = Counter()
        self._lock = threading.RLock()

    def add(self, reason: Reason, stage: object) -> None:
        """Count one span of ``stage``."""
        with suppress(Exception):
            key = self._key(reason, str(stage))
            if reason not in _reported:
                _reported.add(reason)
                write_line(f"a span of {key[1]} was dropped: {reason}. More such spans are counted, not printed.")
            self._count(key, 1)

    def add_forked(self, count: int) -> None:
        """Count spans that forked processes dropped, whatever their stages."""
        with suppress(Exception):
            self._count((Reason.FORKED, ANY), count)

    def flush(self) -> None:
        """Mark what is counted and not marked yet."""
        with suppress(Exception):
            for key in list(self._unmarked):
                self._write(key)

    def _count(self, key: tuple[Reason, str], count: int) -> None:
        with self._lock:
            self._totals[key] += count
            self._unmarked[key] += count
            total = self._totals[key]
        if total.bit_length() > (total - count).bit_length():
            self._write(key)

    def _key(self, reason: Reason, stage: str) -> tuple[Reason, str]:
        key = reason, stage
        if key in self._totals:
            return key
        key = reason, one_line(stage, 40)
        return key if key in self._totals or len(self._totals) < MAX_KEYS else (reason, ANY)

    def _write(self, key: tuple[Reason, str]) -> None:
        with self._lock:
            count = self._unmarked.pop(key, 0)
        if count:
            reason, stage = key
            self._mark(SPANS_DROPPED, f"{count} span{'s' if count > 1 else ''} of {stage}: {reason}")


class ForkedSpans:
    """Spans dropped in forked processes, counted in a page that they share with their parent.

    word 0: 1 once a line is on stderr. The others: a count each.
    """

    def __init__(self) -> None:
        self._words = memoryview(mmap.mmap(-1, 8 * (1 + NUM_SLOTS))).cast("q")

    @classmethod
    def shared(cls) -> "ForkedSpans | None":
        """A new one; None where there is no memory."""
        try:
            return cls()
        except (OSError, ValueError):
            return None

    def add(self, stage: object) -> None:
        """In a forked process."""
        with suppress(Exception):
            is_first, self._words[0] = not self._words[0], 1
            self._words[1 + os.getpid() % NUM_SLOTS] += 1
            if is_first:
                write_line(f"a span of {one_line(str(stage), 40)} was dropped: {Reason.FORKED}.")

    def total(self) -> int:
        """In the parent."""
        return sum(self._words[1:]) if self._words[0] else 0


def write_line(text: str) -> None:
    """One line on stderr. Never waits: where stderr is full, the line is lost."""
    with suppress(Exception):
        poll = select.poll()
        poll.register(STDERR, select.POLLOUT)
        if any(events & select.POLLOUT for _, events in poll.poll(0)):
            os.write(STDERR, f"rankscope: {text}\n".encode())


SCRAP_RECORDS = 256

Span = AbstractContextManager[None, None]
AnyStage = Stage | str
"""A stage or its label, ``forward-compute``."""


class Place(Protocol):
    """Room for records: from ``offset`` to ``limit`` of a writable buffer; the first is number ``first_seq``."""

    buffer: Any
    first_seq: int
    offset: int
    limit: int


@dataclass(slots=True, kw_only=True)
class Scrap:
    """Room that leads nowhere."""

    buffer: Any = field(default_factory=lambda: bytearray(layout.RECORD_BYTES * SCRAP_RECORDS))
    first_seq: int = 0
    offset: int = 0
    limit: int = layout.RECORD_BYTES * SCRAP_RECORDS


class Sink(Protocol):
    """Where room comes from. Called on the recording threads, once in thousands of records."""

    @property
    def dropped(self) -> int:
        """Records lost after they were written."""

    def open_segment(self, first_seq: int) -> Place | None:
        """Room for the records from ``first_seq`` on, or None. Does not raise, nor wait for another process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorder:
    """The functions of :func:`telemetry.record.recorder.make_recorder`. None of them raises or blocks."""

    span: Callable[..., Span]
    """``span(stage, microbatch=-1, chunk=-1, size_bytes=0, peer=-1)``: a context manager. Spans nest, on one thread;
    one that does not is dropped, counted, and reported (``telemetry/record/sink.py``)."""
    step: Callable[[int], Span]
    """The span of a step; what is recorded from now on belongs to it. A step that an exception interrupts gets no span,
    but the mark ``step-interrupted``."""
    mark: Callable[..., None]
    """``mark(name, text="")``"""
    sample: Callable[..., None]
    """``sample(metric, value, step=None)``"""
    record_span: Callable[..., None]
    """``record_span(stage, start_ns, duration_ns, *, step=-1, microbatch=-1, chunk=-1, size_bytes=0, peer=-1, op_seq=0,
    cpu_ns=-1, issue_ns=0, clock=SpanClock.HOST)``: a span that is over, from any thread."""
    begin_on_device: Callable[[], Any | None]
    """A ticket; None where the clock has no room."""
    end_on_device: Callable[[Any | None, DeviceSpan], None]
    """The span of a ticket; it is counted as dropped if the ticket is None. One without a stage is not recorded."""
    lose: Callable[[int], None]
    """Count so many spans as dropped."""
    drop: Callable[[Reason, object], None]
    """Count one span of a stage as dropped, and report why. From any thread."""
    recording: Callable[[], bool]
    on_device: Callable[[], bool]
    """Whether compute and communication are timed by a device's clock. It becomes true in the middle of a session."""
    use_clock: Callable[[DeviceClock], None]
    """From the next span on, time device stages by this clock. From any thread."""
    at_each_step: Callable[[Callable[[], None] | None], None]
    """Have a function called as each step begins. It must not raise or block."""
    current_step: Callable[[], int]
    words: Callable[[], "memoryview[int]"]
    """The state page, or a scrap one."""
    attach: Callable[[Sink, int, "memoryview[int]", DeviceClock | None], None]
    """Record into the sink from this record number on; live state into the words; device stages by the clock."""
    detach: Callable[[], None]
    """Discard what is recorded from now on."""
    forked: Callable[[], None]
    """For a forked process: like ``detach``, but spans are counted as dropped."""
    mark_dropped: Callable[[], None]
    """Mark the spans that were dropped and are not marked yet."""
    beat: Callable[[], int]
    """Bring the state page's counts up to date; the time it did."""
    next_seq: Callable[[], int]
    dropped: Callable[[], int]


def scrap_words() -> "memoryview[int]":
    """A state page without readers."""
    return memoryview(bytearray(layout.STATE_BYTES)).cast("q")
