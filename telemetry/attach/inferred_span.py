"""A span that hooks begin and end. Unlike spans of ``Recorder.span``, it need not nest with the spans of the user.

host        start and end on the host clock, with the processor time of the thread for compute
on device   steps and compute of a rank that uses CUDA: events on the current stream, resolved by the drain thread
"""

import sys
from time import monotonic_ns, thread_time_ns
from typing import Any

from telemetry.record import layout
from telemetry.record.clocks.interface import DeviceSpan
from telemetry.record.recorder import Recorder
from telemetry.stages import Stage, StageClass


class InferredSpan:
    """Begins when it is created. Exactly one of :meth:`end`, :meth:`finish` and :meth:`discard` is called."""

    __slots__ = (
        *("chunk", "cpu_ns", "duration_ns", "end_cpu_ns", "microbatch", "on_device", "recorder", "stage", "start_ns"),
        "ticket",
    )
    start_ns: int

    def __init__(
        self,
        recorder: Recorder,
        stage: Stage,
        microbatch: int = -1,
        chunk: int = -1,
        after: "InferredSpan | None" = None,
    ) -> None:
        """``after``: a span that has ended just now. Its readings of the clocks are used again."""
        is_compute = stage.stage_class is StageClass.COMPUTE
        self.recorder, self.stage, self.microbatch, self.chunk = recorder, stage, microbatch, chunk
        self.on_device = (is_compute or stage is Stage.STEP) and recorder.on_device()
        self.ticket: Any | None = recorder.begin_on_device() if self.on_device else None
        self.cpu_ns = self.end_cpu_ns = self.duration_ns = -1
        if is_compute and not self.on_device:
            self.cpu_ns = after.end_cpu_ns if after is not None and after.end_cpu_ns >= 0 else thread_time_ns()
        is_next = after is not None and after.duration_ns >= 0
        self.start_ns = after.start_ns + after.duration_ns if after is not None and is_next else monotonic_ns()
        recorder.words[layout.WORD_OPEN_SINCE + stage] = self.start_ns

    def end(self, step: int) -> None:
        """End now, and record it. If no CUDA events are free, a step is measured on the host clock."""
        if self.on_device and (self.ticket is not None or self.stage is not Stage.STEP):
            self._close()
            self.recorder.end_on_device(self.ticket, self._device_span(step))
            return
        self.finish()
        self.record(step)

    def finish(self, at_ns: int | None = None) -> None:
        """End on the host clock, now or at an earlier time. :meth:`record` may follow."""
        if self.cpu_ns >= 0:
            self.end_cpu_ns = thread_time_ns()
            self.cpu_ns = self.end_cpu_ns - self.cpu_ns
        self.duration_ns = (monotonic_ns() if at_ns is None else at_ns) - self.start_ns
        self._close()

    def record(self, step: int) -> None:
        """Record a finished span, unless the user recorded the same stage inside."""
        if not self.holds_own_span():
            self.recorder.record_span(
                self.stage,
                self.start_ns,
                self.duration_ns,
                step=step,
                microbatch=self.microbatch,
                chunk=self.chunk,
                cpu_ns=self.cpu_ns,
            )

    def discard(self) -> None:
        """End without a record."""
        self._close()

    def holds_own_span(self) -> bool:
        """Whether the user began a span of the same stage inside."""
        return self.recorder.last_begun(self.stage) >= self.start_ns

    def _close(self) -> None:
        self.recorder.words[layout.WORD_OPEN_SINCE + self.stage] = 0

    def _device_span(self, step: int) -> DeviceSpan:
        stage = None if self.holds_own_span() else self.stage
        return DeviceSpan(stage=stage, issue_ns=self.start_ns, step=step, microbatch=self.microbatch, chunk=self.chunk)


def is_capturing(recorder: Recorder) -> bool:
    """Whether the current stream captures a CUDA graph: no work runs, so there is nothing to measure."""
    return recorder.on_device() and bool(sys.modules["torch.cuda"].is_current_stream_capturing())
