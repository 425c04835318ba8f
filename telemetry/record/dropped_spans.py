"""Counts spans that cannot be recorded by reason and stage, and reports them on stderr and in the store.

    span dropped --> count --> 1st, 2nd, 4th, 8th ... and the end of the session: a mark with the number since the last
                        `--> the first of a reason in this process: one line on stderr

    forked process --> count in a page that it shares with its parent --> the parent's count, at each step

These functions do not raise or wait. They run only when a span is dropped.
"""

import mmap
import os
import select
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum

from telemetry.printable import one_line
from telemetry.records import SPANS_DROPPED

MAX_KEYS = 64
"""Pairs of reason and stage that are counted separately. Further pairs are counted together."""
ANY = "any stage"
STDERR = 2
NUM_SLOTS = 63
"""Words of a shared page after the first, by process id, so that forked processes rarely use the same word."""


class Reason(StrEnum):
    """Why a span was dropped, and what to do."""

    NOT_NESTED = (
        "a span of another thread or asyncio task was open at the same time: in that thread or task, use "
        "rankscope.record_span(stage, start_ns, duration_ns)"
    )
    TOO_DEEP = (
        "too many spans were open at once: close each span, and use rankscope.record_span in generators and tasks"
    )
    NO_NUMBER = "the number of the step is not an integer: use rankscope.step(number)"
    UNKNOWN_STAGE = "no such stage: see rankscope.Stage"
    CAPTURED = (
        "the span began or ended while a CUDA graph was captured, and no work runs then: put the span around the "
        "replay of the graph"
    )
    FORKED = (
        "a forked process, such as a DataLoader worker, does not record: put a span around the wait for its result in "
        "the process that called rankscope.start"
    )


_reported: set[Reason] = set()
"""Reasons that this process has printed."""


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
        """Count spans that forked processes dropped, of any stage."""
        with suppress(Exception):
            self._count((Reason.FORKED, ANY), count)

    def flush(self) -> None:
        """Mark the spans that are counted and not marked yet."""
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

    Word 0 is 1 once a line was printed on stderr. Each other word is a count.
    """

    def __init__(self) -> None:
        self._words = memoryview(mmap.mmap(-1, 8 * (1 + NUM_SLOTS))).cast("q")

    @classmethod
    def shared(cls) -> "ForkedSpans | None":
        """A new page; None if there is no memory."""
        try:
            return cls()
        except (OSError, ValueError):
            return None

    def add(self, stage: object) -> None:
        """Count one span. For a forked process."""
        with suppress(Exception):
            is_first, self._words[0] = not self._words[0], 1
            self._words[1 + os.getpid() % NUM_SLOTS] += 1
            if is_first:
                write_line(f"a span of {one_line(str(stage), 40)} was dropped: {Reason.FORKED}.")

    def total(self) -> int:
        """The number of spans that all forked processes dropped. For the parent."""
        return sum(self._words[1:]) if self._words[0] else 0


def write_line(text: str) -> None:
    """Write one line on stderr. Never waits: if stderr is full, the line is lost."""
    with suppress(Exception):
        poll = select.poll()
        poll.register(STDERR, select.POLLOUT)
        if any(events & select.POLLOUT for _, events in poll.poll(0)):
            os.write(STDERR, f"rankscope: {text}\n".encode())
