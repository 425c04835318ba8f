"""What the recorder is made of: where its room comes from, and the functions it gives."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from telemetry.record import layout
from telemetry.record.clocks.interface import DeviceClock, DeviceSpan
from telemetry.record.dropped_spans import Reason
from telemetry.stages import Stage

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
    one that does not is dropped, counted, and reported (``telemetry/record/dropped_spans.py``)."""
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
    """What comes now goes nowhere."""
    forked: Callable[[], None]
    """For a forked process: like ``detach``, but spans are counted as dropped."""
    mark_dropped: Callable[[], None]
    """Mark the spans that were dropped and are not marked yet."""
    beat: Callable[[], int]
    """Bring the state page's counts up to date; the time it did."""
    next_seq: Callable[[], int]
    dropped: Callable[[], int]


def scrap_words() -> "memoryview[int]":
    """A state page that nobody reads."""
    return memoryview(bytearray(layout.STATE_BYTES)).cast("q")
