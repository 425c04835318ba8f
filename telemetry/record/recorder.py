"""The recorder of a process: ``span``, ``step``, ``mark`` and ``sample``, at half a microsecond a span in plain Python.

    span(stage)     takes the pooled object of (stage, depth), whose class says how time is taken; stamps its start
                    and stores it into the state page
    __exit__        stamps its end, reserves 64 bytes, and packs the record in one call (``spans.py``)

Taking an object is a load and a store of ``depth`` with no call in between, so two threads never take the same object.
No method raises into the caller: records that cannot be kept are counted as dropped.

Before ``attach`` and after ``detach`` the same code writes into scrap memory.
"""

import struct
from collections.abc import Callable
from contextlib import AbstractContextManager
from time import monotonic_ns
from typing import Any

from telemetry.record import layout
from telemetry.record.clocks.interface import DeviceClock, DeviceSpan
from telemetry.record.dropped_spans import DroppedSpans, ForkedSpans, Reason
from telemetry.record.layout import RECORD_BYTES, pack_text
from telemetry.record.record_buffer import RecordBuffer, Scrap, Sink, scrap_words
from telemetry.record.spans import HostSpan, Refused, span_class
from telemetry.stages import SpanClock, Stage

MAX_DEPTH = 16
FULL_SPAN = struct.Struct("lllllIiIhhII")
Span = AbstractContextManager[None, None]
AnyStage = Stage | str
"""A stage or its label, ``forward-compute``."""


class Recorder(RecordBuffer):
    """Records spans, marks and samples. Spans nest, and belong to one thread; everything else is for any thread."""

    __slots__ = ("_device_clock", "_forked_from", "_pools", "_profile_word", "_see_profile", "_try_open_clock", "depth")

    def __init__(self) -> None:
        super().__init__()
        self.depth = 0
        self._device_clock: DeviceClock | None = None
        self._try_open_clock: Callable[[], None] | None = None
        self._profile_word = 0
        """The word of the state page that was seen last."""
        self._see_profile: Callable[[int, int], int] | None = None
        self._forked_from: ForkedSpans | None = None
        """Counts of dropped spans that a forked process shares with its recording parent; None in other processes."""
        self._pools: dict[AnyStage, list[HostSpan]] = {}
        self._fill_pools()

    def span(self, stage: AnyStage, microbatch: int = -1, chunk: int = -1, size_bytes: int = 0, peer: int = -1) -> Span:
        """A context manager that records the span of a stage."""
        try:
            timed = self._pools[stage][self.depth]
        except (KeyError, IndexError, TypeError):
            reason = Reason.TOO_DEEP if self.depth >= MAX_DEPTH else Reason.UNKNOWN_STAGE
            return Refused(self, reason, stage)
        self.depth = timed.inside
        timed.microbatch = microbatch
        timed.chunk = chunk
        timed.size_bytes = size_bytes
        timed.peer = peer
        timed.start = self.words[timed.slot] = monotonic_ns()
        return timed

    def step(self, number: int) -> Span:
        """A context manager that records a step. Everything that is recorded from now on belongs to this step."""
        try:
            self.begin_step(number)
        except (TypeError, ValueError, OverflowError):
            return Refused(self, Reason.NO_NUMBER, Stage.STEP.label)
        return self.span(Stage.STEP)

    def begin_step(self, number: int) -> None:
        """Begin a step without a span. Everything that is recorded from now on belongs to this step.

        Raises:
            TypeError, ValueError, OverflowError: it is not a number.
        """
        number = int(number) & 0xFFFFFFFF
        if (word := self.words[layout.WORD_PROFILE]) != self._profile_word and self._see_profile is not None:
            self._profile_word = self._see_profile(number, word)
        self.step_number = self.words[layout.WORD_STEP] = number
        self.words[layout.WORD_STEP_STARTED] = self.beat()
        if (try_open_clock := self._try_open_clock) is not None:
            try_open_clock()

    def last_begun(self, stage: Stage) -> int:
        """Start of the newest :meth:`span` of a stage, CLOCK_MONOTONIC; 0 if there was none. Considers the three
        outermost levels only."""
        pool = self._pools[stage]
        return max(pool[0].start, pool[1].start, pool[2].start)

    def record_span(
        self,
        stage: AnyStage,
        start_ns: int,
        duration_ns: int,
        *,
        step: int = -1,
        microbatch: int = -1,
        chunk: int = -1,
        size_bytes: int = 0,
        peer: int = -1,
        op_seq: int = 0,
        cpu_ns: int = -1,
        issue_ns: int = 0,
        clock: SpanClock = SpanClock.HOST,
    ) -> None:
        """Record a span that is over. Times are CLOCK_MONOTONIC. ``step`` -1 means the current step."""
        try:
            word = self._pools[stage][0].word | clock << 24
        except (KeyError, TypeError):
            return self.drop(Reason.UNKNOWN_STAGE, stage)
        if self._forked_from is not None:
            return self.drop_forked(self._pools[stage][0].stage)
        if (taken := self.reserve(1)) is None:
            return None
        into, place = taken
        try:
            FULL_SPAN.pack_into(
                into, place, start_ns, duration_ns, cpu_ns, size_bytes, issue_ns,
                step if step >= 0 else self.step_number, peer, op_seq, microbatch, chunk, word, place,
            )  # fmt: skip
        except Exception:
            self.mend(into, place, start_ns, duration_ns, word)

    def mend(self, into: Any, place: int, start_ns: object, duration_ns: object, word: int) -> None:
        """Write a record with a field that is out of range. Its times are kept. Its details are not."""
        try:
            FULL_SPAN.pack_into(
                into, place, start_ns, duration_ns, -1, 0, 0, self.step_number, -1, 0, -1, -1, word, place
            )
        except Exception:
            self.lose(1)
            into[place : place + RECORD_BYTES] = pack_text(b"", place)  # a gap would hide all later records

    def drop_forked(self, stage: Stage) -> None:
        """Count a span in a forked process as dropped."""
        if self._forked_from is not None:
            self._forked_from.add(stage.label)

    def on_device(self) -> bool:
        """Whether a device's clock times compute and communication. This can begin after the session has started."""
        return self._device_clock is not None

    def begin_on_device(self) -> Any | None:
        """Begin a span. Returns its ticket. None if the clock cannot time another span."""
        try:
            return self._device_clock.begin() if self._device_clock is not None else None
        except Exception:
            return None

    def end_on_device(self, ticket: Any | None, span: DeviceSpan) -> None:
        """End the span of a ticket. It counts as dropped if the ticket is None. Without a stage it is not recorded."""
        try:
            if ticket is not None and self._device_clock is not None:
                return self._device_clock.end(ticket, span)
        except Exception:
            pass
        return self.lose(1) if span.stage is not None else None

    def use_clock(self, clock: DeviceClock) -> None:
        """From the next span on, time device stages by this clock. Open spans keep the clock that they began with."""
        if self._sink is not None:
            self._device_clock = clock
            self._fill_pools()

    def at_each_step(self, try_open_clock: Callable[[], None] | None) -> None:
        """Register a function that is called when a step begins. It must not raise or block."""
        self._try_open_clock = try_open_clock

    def at_profile_word(self, see_profile: Callable[[int, int], int]) -> None:
        """Register a function that is called when a step begins, if the word for profiles on the state page differs
        from the word that was seen last. The function gets the step and the word, and returns the word that counts as
        seen. If it returns -1, it is also called at the next step. It must not raise."""
        self._see_profile = see_profile

    def attach(self, to: Sink, first_seq: int, words: "memoryview[int]", clock: DeviceClock | None) -> None:
        """Record into the sink from this record number on, and live state into ``words``."""
        self._start_over(words)
        self._device_clock, self._forks = clock, ForkedSpans.shared()
        self._dropped_spans = DroppedSpans(self.mark)
        self._fill_pools()
        self._use(to.open_segment(first_seq) or Scrap(first_seq=first_seq))
        self._sink = to

    def detach(self) -> None:
        """Discard what is recorded from now on."""
        self._start_over(scrap_words())
        self._fill_pools()

    def forked(self) -> None:
        """Call in a forked process. Does the same as ``detach``, but spans are counted as dropped."""
        parents = self._forks or self._forked_from
        self._start_over(scrap_words())
        self._forked_from = parents
        self._fill_pools()

    def _start_over(self, words: "memoryview[int]") -> None:
        self.words, self.depth = words, 0
        self._device_clock = self._try_open_clock = self._forked_from = self._see_profile = None
        self._profile_word = 0
        self._reset()

    def _fill_pools(self) -> None:
        on_device, forked = self._device_clock is not None, self._forked_from is not None
        for stage in Stage:
            kind = span_class(stage, on_device=on_device, forked=forked)
            spans = [kind(self, stage, depth) for depth in range(MAX_DEPTH)]
            self._pools[stage] = self._pools[stage.label] = spans
