"""Open spans: one class for each way to take the time.

    host        start and end on the host clock, written when the span ends
    timed       the same, with the processor time of the thread
    on device   events on the current stream of the device, resolved later by the drain thread
    forked      a forked process does not record: the span is counted as dropped

Objects are pooled by stage and depth, so that a span allocates nothing.
"""

import struct
from time import monotonic_ns, thread_time_ns
from typing import TYPE_CHECKING

from telemetry.record import layout
from telemetry.record.clocks.interface import DeviceSpan
from telemetry.record.dropped_spans import Reason
from telemetry.record.layout import RECORD_BYTES, RecordKind
from telemetry.stages import Stage, StageClass

if TYPE_CHECKING:
    from telemetry.record.recorder import Recorder

STEP_INTERRUPTED = "step-interrupted"
"""Name of the mark of a step that did not complete. Its text is the type of the exception."""
SPAN = struct.Struct("llll8xIi4xhhII")
"""A span on the host clock. Native ``l``: the standard-size ``q`` takes a slower path in CPython, 40 ns a span."""
pack_span = SPAN.pack_into


class HostSpan(list[None]):
    """A span on the host clock, begun by ``Recorder.span``. ``inside`` is the depth within it.

    It is an empty list, so that ``__enter__`` can be ``list.clear``. ``__enter__`` has nothing to do, and a call of a C
    function takes 25 ns less than a call of a Python function.
    """

    __slots__ = (
        *("chunk", "depth", "inside", "microbatch", "peer", "recorder", "size_bytes", "slot", "stage", "start"),
        "word",
    )
    microbatch: int
    chunk: int
    size_bytes: int
    peer: int
    start: int

    def __init__(self, recorder: "Recorder", stage: Stage, depth: int) -> None:
        self.recorder, self.stage, self.depth, self.inside = recorder, stage, depth, depth + 1
        self.slot = layout.WORD_OPEN_SINCE + stage
        self.word = RecordKind.SPAN | stage << 8 | stage.stream << 16
        self.start = 0

    __enter__ = list.clear

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        end = monotonic_ns()
        recorder = self.recorder
        recorder.words[self.slot] = 0
        if recorder.depth < self.inside:
            return recorder.drop(Reason.NOT_NESTED, self.stage.label)
        recorder.depth = self.depth
        while recorder.offset == recorder.limit:  # again if other threads filled the new segment at once
            if not recorder.roll():
                return None
        place = recorder.offset
        recorder.offset = place + RECORD_BYTES
        start = self.start
        try:
            pack_span(
                recorder.buffer, place, start, end - start, -1, self.size_bytes, recorder.step_number, self.peer,
                self.microbatch, self.chunk, self.word, place,
            )  # fmt: skip
        except Exception:
            recorder.mend(recorder.buffer, place, start, end - start, self.word)

    def closes(self) -> bool:
        """End the span on the state page. Returns False, and drops the span, if it is not nested."""
        recorder = self.recorder
        recorder.words[self.slot] = 0
        if recorder.depth < self.inside:
            recorder.drop(Reason.NOT_NESTED, self.stage.label)
            return False
        recorder.depth = self.depth
        return True


class TimedSpan(HostSpan):
    """A span on the host clock, with the processor time of its thread (about a microsecond more)."""

    __slots__ = ("cpu_start",)

    def __enter__(self) -> None:
        self.cpu_start = thread_time_ns()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        cpu_ns = thread_time_ns() - self.cpu_start
        end = monotonic_ns()
        recorder = self.recorder
        recorder.words[self.slot] = 0
        if recorder.depth < self.inside:
            return recorder.drop(Reason.NOT_NESTED, self.stage.label)
        recorder.depth = self.depth
        while recorder.offset == recorder.limit:  # again if other threads filled the new segment at once
            if not recorder.roll():
                return None
        place = recorder.offset
        recorder.offset = place + RECORD_BYTES
        start = self.start
        try:
            pack_span(
                recorder.buffer, place, start, end - start, cpu_ns, self.size_bytes, recorder.step_number, self.peer,
                self.microbatch, self.chunk, self.word, place,
            )  # fmt: skip
        except Exception:
            recorder.mend(recorder.buffer, place, start, end - start, self.word)


class StepSpan(HostSpan):
    """A step. If an exception (an error, Ctrl-C, an exit) interrupts it, a mark is recorded instead of a span."""

    __slots__ = ()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if is_complete(kind):
            return HostSpan.__exit__(self, kind, error, trace)
        return interrupt(self, kind)


class OnDevice(HostSpan):
    """A span on the device's clock: events on the current stream, resolved later by the drain thread."""

    __slots__ = ("ticket",)

    def __enter__(self) -> None:
        self.ticket = self.recorder.begin_on_device()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if not self.closes():
            return
        span = DeviceSpan(
            stage=self.stage, issue_ns=self.start, step=self.recorder.step_number, microbatch=self.microbatch,
            chunk=self.chunk, size_bytes=self.size_bytes, peer=self.peer,
        )  # fmt: skip
        self.recorder.end_on_device(self.ticket, span)


class StepOnDevice(OnDevice):
    """A step on the device's clock, so that it compares with the spans inside it although the host runs ahead.
    If the device queue is full, the host measures the step. The step is not dropped."""

    __slots__ = ()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if not is_complete(kind):
            return interrupt(self, kind)
        return (HostSpan if self.ticket is None else OnDevice).__exit__(self, kind, error, trace)


class ForkedSpan(HostSpan):
    """A span in a forked process, which does not record."""

    __slots__ = ()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.recorder.depth = min(self.recorder.depth, self.depth)
        self.recorder.drop_forked(self.stage)


class Refused:
    """Replaces a span that cannot be recorded."""

    __slots__ = ("reason", "recorder", "stage")

    def __init__(self, recorder: "Recorder", reason: Reason, stage: object) -> None:
        self.recorder, self.reason, self.stage = recorder, reason, stage

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self.recorder.drop(self.reason, self.stage)


def is_complete(kind: object) -> bool:
    """Whether a step completed, by the type of the exception that left it."""
    return kind is None or kind is GeneratorExit  # `break` in a loop over a generator closes it with this


def interrupt(step: HostSpan, kind: object) -> None:
    """Record the mark of a step that an exception interrupted."""
    if step.closes():
        step.recorder.mark(STEP_INTERRUPTED, getattr(kind, "__name__", ""))


def span_class(stage: Stage, *, on_device: bool, forked: bool) -> type[HostSpan]:
    """The class of the spans of a stage. ``on_device``: whether a device clock is in use."""
    if forked:
        return ForkedSpan
    if stage is Stage.STEP:
        return StepOnDevice if on_device else StepSpan
    if on_device and stage.stage_class in (StageClass.COMPUTE, StageClass.COMMUNICATION):
        return OnDevice
    return TimedSpan if stage.stage_class is StageClass.COMPUTE else HostSpan
