"""The hot path: one closure over the buffer, so that a span costs half a microsecond in plain Python.

    span(stage)     takes the pooled object of (stage, depth), whose class says how time is taken; stamps its start
                    and stores it into the state page
    __exit__        stamps its end, reserves 64 bytes, and packs the record in one call

Taking an object (``depth``) and reserving a place (``offset``) are a few stores with no call in between, and the pack
follows with no chance for another thread to run: under the interpreter's lock two threads never take the same, and at
most the last record of a killed process is torn. Nothing here raises into the caller: what cannot be kept is counted
as dropped.

Before ``attach`` and after ``detach`` the same code writes into a scrap buffer in memory.
"""

import struct
import sys
import threading
from collections.abc import Callable
from time import monotonic_ns, thread_time_ns
from typing import Any

from telemetry.record import layout
from telemetry.record.clocks.interface import DeviceClock, DeviceSpan
from telemetry.record.decode import name_bytes, pack_mark, pack_text, text_pieces
from telemetry.record.layout import RECORD_BYTES, RecordKind
from telemetry.record.sink import (
    AnyStage,
    DroppedSpans,
    ForkedSpans,
    Place,
    Reason,
    Recorder,
    Scrap,
    Sink,
    Span,
    scrap_words,
)
from telemetry.stages import SpanClock, Stage, StageClass

assert (sys.byteorder, struct.calcsize("l")) == ("little", 8), "rank files are written on 64-bit little-endian hosts"

MAX_DEPTH = 16
STEP_INTERRUPTED = "step-interrupted"
"""Name of the mark of a step that did not complete. Its text is the type of the exception."""
SPAN = struct.Struct("llll8xIi4xhhII")
"""A span on the host clock. Native ``l``: the standard-size ``q`` takes a slower path in CPython, 40 ns a span."""
FULL_SPAN = struct.Struct("lllllIiIhhII")
SAMPLE = struct.Struct("ld24sI12xII")


def make_recorder() -> Recorder:  # one long function: closures are what makes it fast
    """A recorder attached to nothing."""
    sink: Sink | None = None
    device_clock: DeviceClock | None = None
    try_open_clock: Callable[[], None] | None = None
    words = scrap_words()
    place_now: Place = Scrap()
    buffer: Any = place_now.buffer
    offset, limit = place_now.offset, place_now.limit
    depth, step_number, lost = 0, 0, 0
    dropped_spans: DroppedSpans | None = None
    own_forks: ForkedSpans | None = None  # of this process, while it records
    forked_from: ForkedSpans | None = None  # of the recording process that this one is a fork of
    lost_in_forks = 0
    rolling, making_room = threading.RLock(), False
    pack_span, pack_full, pack_sample = SPAN.pack_into, FULL_SPAN.pack_into, SAMPLE.pack_into

    # --- spans ------------------------------------------------------------------------------------------------

    class HostSpan(list[None]):
        """A span on the host clock, begun by ``span``. ``inside`` is the depth within it.

        An empty list, for the sake of ``__enter__``: there is nothing left to do, and a C function does nothing
        25 ns sooner than a Python function.
        """

        __slots__ = ("chunk", "depth", "inside", "microbatch", "peer", "size_bytes", "slot", "stage", "start", "word")
        microbatch: int
        chunk: int
        size_bytes: int
        peer: int
        start: int

        def __init__(self, stage: Stage, depth: int) -> None:
            self.stage, self.depth, self.inside = stage, depth, depth + 1
            self.slot = layout.WORD_OPEN_SINCE + stage
            self.word = RecordKind.SPAN | stage << 8 | stage.stream << 16

        __enter__ = list.clear

        def __exit__(self, kind: object, error: object, trace: object) -> None:
            nonlocal offset, depth
            end = monotonic_ns()
            words[self.slot] = 0
            if depth < self.inside:
                return drop(Reason.NOT_NESTED, self.stage.label)
            depth = self.depth
            if offset == limit and not roll():
                return None
            place = offset
            offset = place + RECORD_BYTES
            start = self.start
            try:
                pack_span(
                    buffer, place, start, end - start, -1, self.size_bytes, step_number, self.peer,
                    self.microbatch, self.chunk, self.word, place,
                )  # fmt: skip
            except Exception:
                mend(buffer, place, start, end - start, self.word)

    class TimedSpan(HostSpan):
        """A span on the host clock, with the processor time of its thread (about a microsecond more)."""

        __slots__ = ("cpu_start",)

        def __enter__(self) -> None:
            self.cpu_start = thread_time_ns()

        def __exit__(self, kind: object, error: object, trace: object) -> None:
            nonlocal offset, depth
            cpu_ns = thread_time_ns() - self.cpu_start
            end = monotonic_ns()
            words[self.slot] = 0
            if depth < self.inside:
                return drop(Reason.NOT_NESTED, self.stage.label)
            depth = self.depth
            if offset == limit and not roll():
                return None
            place = offset
            offset = place + RECORD_BYTES
            start = self.start
            try:
                pack_span(
                    buffer, place, start, end - start, cpu_ns, self.size_bytes, step_number, self.peer,
                    self.microbatch, self.chunk, self.word, place,
                )  # fmt: skip
            except Exception:
                mend(buffer, place, start, end - start, self.word)

    class StepSpan(HostSpan):
        """A step. An exception (an error, Ctrl-C, an exit) interrupts it: then it leaves a mark, and no span."""

        __slots__ = ()

        def __exit__(self, kind: object, error: object, trace: object) -> None:
            if is_whole(kind):
                return HostSpan.__exit__(self, kind, error, trace)
            return interrupt(self, kind)

    class OnDevice(HostSpan):
        """A span on the device's clock: noted on the current stream, resolved later by the drain thread."""

        __slots__ = ("ticket",)

        def __enter__(self) -> None:
            self.ticket = begin_on_device()

        def __exit__(self, kind: object, error: object, trace: object) -> None:
            nonlocal depth
            words[self.slot] = 0
            if depth < self.inside:
                return drop(Reason.NOT_NESTED, self.stage.label)
            depth = self.depth
            note = DeviceSpan(
                stage=self.stage, issue_ns=self.start, step=step_number, microbatch=self.microbatch,
                chunk=self.chunk, size_bytes=self.size_bytes, peer=self.peer,
            )  # fmt: skip
            end_on_device(self.ticket, note)
            return None

    class StepOnDevice(OnDevice):
        """A step on the device's clock, so that it compares with the spans inside it although the host runs ahead.
        If the device queue is full, the host measures the step. The step is not dropped."""

        __slots__ = ()

        def __exit__(self, kind: object, error: object, trace: object) -> None:
            if not is_whole(kind):
                return interrupt(self, kind)
            return (HostSpan if self.ticket is None else OnDevice).__exit__(self, kind, error, trace)

    def is_whole(kind: object) -> bool:
        return kind is None or kind is GeneratorExit  # a `break` out of a loop over a generator closes it so

    def interrupt(step: HostSpan, kind: object) -> None:
        nonlocal depth
        words[step.slot] = 0
        if depth < step.inside:
            return drop(Reason.NOT_NESTED, step.stage.label)
        depth = step.depth
        return mark(STEP_INTERRUPTED, getattr(kind, "__name__", ""))

    class ForkedSpan(HostSpan):
        """A span in a forked process, which does not record."""

        __slots__ = ()

        def __exit__(self, kind: object, error: object, trace: object) -> None:
            nonlocal depth
            depth = min(depth, self.depth)
            if forked_from is not None:
                forked_from.add(self.stage.label)

    class Refused:
        """Replaces a span that cannot be recorded."""

        __slots__ = ("reason", "stage")

        def __init__(self, reason: Reason, stage: object) -> None:
            self.reason, self.stage = reason, stage

        def __enter__(self) -> None:
            pass

        def __exit__(self, *_: object) -> None:
            drop(self.reason, self.stage)

    pools: dict[AnyStage, list[HostSpan]] = {}

    def fill_pools() -> None:
        for stage in Stage:
            kind = class_of(stage)
            pools[stage] = pools[stage.label] = [kind(stage, level) for level in range(MAX_DEPTH)]

    def class_of(stage: Stage) -> type[HostSpan]:
        if forked_from is not None:
            return ForkedSpan
        if stage is Stage.STEP:
            return StepSpan if device_clock is None else StepOnDevice
        if device_clock is not None and stage.stage_class in (StageClass.COMPUTE, StageClass.COMMUNICATION):
            return OnDevice
        return TimedSpan if stage.stage_class is StageClass.COMPUTE else HostSpan

    def span(stage: AnyStage, microbatch: int = -1, chunk: int = -1, size_bytes: int = 0, peer: int = -1) -> Span:
        nonlocal depth
        try:
            timed = pools[stage][depth]
        except (KeyError, IndexError, TypeError):
            return Refused(Reason.TOO_DEEP if depth >= MAX_DEPTH else Reason.UNKNOWN_STAGE, stage)
        depth = timed.inside
        timed.microbatch = microbatch
        timed.chunk = chunk
        timed.size_bytes = size_bytes
        timed.peer = peer
        timed.start = words[timed.slot] = monotonic_ns()
        return timed

    def step(number: int) -> Span:
        nonlocal step_number
        try:
            step_number = int(number) & 0xFFFFFFFF
        except (TypeError, ValueError, OverflowError):
            return Refused(Reason.NO_NUMBER, Stage.STEP.label)
        words[layout.WORD_STEP] = step_number
        words[layout.WORD_STEP_STARTED] = beat()
        if (poll := try_open_clock) is not None:
            poll()
        return span(Stage.STEP)

    def drop(reason: Reason, stage: object) -> None:
        """Lose a span. One that is not nested ended while spans inside it ran: another may have taken its start."""
        lose(1)
        if dropped_spans is not None:
            dropped_spans.add(reason, stage)

    # --- the device -------------------------------------------------------------------------------------------

    def begin_on_device() -> Any | None:
        try:
            return device_clock.begin() if device_clock is not None else None
        except Exception:
            return None

    def end_on_device(ticket: Any | None, note: DeviceSpan) -> None:
        try:
            if ticket is not None and device_clock is not None:
                return device_clock.end(ticket, note)
        except Exception:
            pass
        return lose(1) if note.stage is not None else None

    def use_clock(clock: DeviceClock) -> None:
        """Spans that are open keep the clock that they began with."""
        nonlocal device_clock
        if sink is not None:
            device_clock = clock
            fill_pools()

    def at_each_step(poll: Callable[[], None] | None) -> None:
        nonlocal try_open_clock
        try_open_clock = poll

    # --- records other than spans that just ended ---------------------------------------------------------------

    def record_span(
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
        try:
            word = pools[stage][0].word | clock << 24
        except (KeyError, TypeError):
            return drop(Reason.UNKNOWN_STAGE, stage)
        if forked_from is not None:
            return forked_from.add(pools[stage][0].stage.label)
        if (taken := reserve(1)) is None:
            return None
        into, place = taken
        try:
            pack_full(
                into, place, start_ns, duration_ns, cpu_ns, size_bytes, issue_ns, step if step >= 0 else step_number,
                peer, op_seq, microbatch, chunk, word, place,
            )  # fmt: skip
        except Exception:
            mend(into, place, start_ns, duration_ns, word)

    def sample(metric: str, value: float, step: int | None = None) -> None:
        try:
            name, number = name_bytes(metric), float(value)
            of_step = step_number if step is None else step & 0xFFFFFFFF
        except Exception:
            return lose(1)
        if (taken := reserve(1)) is not None:
            into, place = taken
            pack_sample(into, place, monotonic_ns(), number, name, of_step, RecordKind.SAMPLE, place)

    def mark(name: str, text: str = "") -> None:
        try:
            head, pieces = name_bytes(name), text_pieces(text)
        except Exception:
            return lose(1)
        if (taken := reserve(1 + len(pieces))) is not None:
            into, place = taken
            records = pack_mark(monotonic_ns(), head, step_number, pieces, place)
            into[place : place + len(records)] = records

    def mend(into: Any, place: int, start_ns: object, duration_ns: object, word: int) -> None:
        """A field does not fit its place in the record: keep the times and let the details go."""
        try:
            pack_full(into, place, start_ns, duration_ns, -1, 0, 0, step_number, -1, 0, -1, -1, word, place)
        except Exception:
            lose(1)
            into[place : place + RECORD_BYTES] = pack_text(b"", place)  # a hole would hide all that follows

    # --- room ---------------------------------------------------------------------------------------------------

    def reserve(count: int) -> tuple[Any, int] | None:
        """Buffer and place for ``count`` records in one segment; None where they are lost."""
        nonlocal offset
        if offset + count * RECORD_BYTES > limit and not (pad() and roll()):
            return None
        place = offset
        offset = place + count * RECORD_BYTES
        return buffer, place

    def pad() -> bool:
        """Fill the rest of the segment with empty records."""
        nonlocal offset
        into, places = buffer, range(offset, limit, RECORD_BYTES)
        offset = limit
        for place in places:
            into[place : place + RECORD_BYTES] = pack_text(b"", place)
        return True

    def roll() -> bool:
        """Go on in the next segment, or in the scrap buffer. Other threads wait meanwhile: they would do the same.
        False, and the record is lost: this thread is at it already (a collection of garbage, a signal)."""
        nonlocal making_room
        with rolling:
            if making_room:
                lose(1)
                return False
            making_room = True
            try:
                if offset == limit:
                    use(next_place())
                    beat()
            finally:
                making_room = False
        return True

    def next_place() -> Place:
        if sink is None:
            return Scrap()
        if isinstance(place_now, Scrap):
            lose(len(place_now.buffer) // RECORD_BYTES)
        try:
            return sink.open_segment(next_seq()) or Scrap(first_seq=next_seq())
        except Exception:
            return Scrap(first_seq=next_seq())

    def use(place: Place) -> None:
        nonlocal place_now, buffer, offset, limit
        place_now = place
        buffer, offset, limit = place.buffer, place.offset, place.limit

    def next_seq() -> int:
        """Number of the next record; what is in the scrap buffer has none."""
        return place_now.first_seq + (
            0 if isinstance(place_now, Scrap) else (offset - place_now.offset) // RECORD_BYTES
        )

    # --- state ----------------------------------------------------------------------------------------------------

    def beat() -> int:
        words[layout.WORD_BEAT] = now = monotonic_ns()
        words[layout.WORD_RECORDED] = next_seq()
        if own_forks is not None:
            count_forked(own_forks)
        words[layout.WORD_DROPPED] = dropped()
        return now

    def count_forked(forks: ForkedSpans) -> None:
        """Take over what forked processes dropped since this was last called."""
        nonlocal lost_in_forks
        if dropped_spans is not None and (new := forks.total() - lost_in_forks) > 0:
            lost_in_forks += new
            dropped_spans.add_forked(new)

    def mark_dropped() -> None:
        beat()
        if dropped_spans is not None:
            dropped_spans.flush()

    def lose(count: int) -> None:
        nonlocal lost
        if sink is not None:
            lost += count

    def dropped() -> int:
        in_scrap = offset // RECORD_BYTES if sink is not None and isinstance(place_now, Scrap) else 0
        return lost + lost_in_forks + in_scrap + (sink.dropped if sink is not None else 0)

    def attach(to: Sink, first_seq: int, page: "memoryview[int]", clock: DeviceClock | None) -> None:
        nonlocal sink, device_clock, try_open_clock, words, depth, lost
        nonlocal forked_from, own_forks, lost_in_forks, dropped_spans
        device_clock, try_open_clock, words, depth, lost = clock, None, page, 0, 0
        forked_from, own_forks, lost_in_forks = None, ForkedSpans.shared(), 0
        dropped_spans = DroppedSpans(mark)
        fill_pools()
        use(to.open_segment(first_seq) or Scrap(first_seq=first_seq))
        sink = to

    def detach() -> None:
        nonlocal sink, device_clock, try_open_clock, words, depth, lost, rolling, making_room
        nonlocal forked_from, own_forks, lost_in_forks, dropped_spans
        sink, device_clock, try_open_clock, words, depth, lost = None, None, None, scrap_words(), 0, 0
        forked_from, own_forks, lost_in_forks, dropped_spans = None, None, 0, None
        rolling, making_room = threading.RLock(), False  # in a forked child another thread may have held it
        fill_pools()
        use(Scrap())

    def forked() -> None:
        nonlocal forked_from
        parents = own_forks or forked_from
        detach()
        forked_from = parents
        fill_pools()

    fill_pools()
    return Recorder(
        span=span,
        step=step,
        mark=mark,
        sample=sample,
        record_span=record_span,
        begin_on_device=begin_on_device,
        end_on_device=end_on_device,
        lose=lose,
        drop=drop,
        recording=lambda: sink is not None,
        on_device=lambda: device_clock is not None,
        use_clock=use_clock,
        at_each_step=at_each_step,
        current_step=lambda: step_number,
        words=lambda: words,
        attach=attach,
        detach=detach,
        forked=forked,
        mark_dropped=mark_dropped,
        beat=beat,
        next_seq=next_seq,
        dropped=dropped,
    )
