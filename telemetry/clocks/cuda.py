"""Spans on a CUDA device: pooled pairs of events on the stream that does the work, resolved by the drain thread.

    training thread    start.record() ---- kernels are launched ---- end.record()        on the current stream
    drain thread       end.query()?  ->  start.elapsed_time(end)  and  reference.elapsed_time(start)

The training thread records events and does nothing else: no wait, no synchronize, no edge between streams. The
reference is an event on a stream of the clock's own, which no other stream waits for: recorded, asked until it has
happened, and so bracketed by two readings of the host clock. A new one comes every second, because an elapsed time is
a 32-bit float of milliseconds, exact to a microsecond for some seconds only, and because the clocks drift (``tie``).
"""

from collections import deque
from dataclasses import dataclass
from time import monotonic_ns
from typing import Any

import torch

from telemetry.clocks.interface import DeviceSpan, ResolvedSpan
from telemetry.clocks.tie import Bracket, ClockTie
from telemetry.errors import UsageError

MAX_PENDING = 16384
CALIBRATION_PERIOD_NS = 1_000_000_000
CALIBRATION_TRIES = 3
MAX_BRACKET_NS = 500_000
GIVE_UP_AFTER = 64
"""Unfinished spans in a row after which a pass over the queue ends: what was issued later seldom ends sooner."""


@dataclass(slots=True, kw_only=True)
class OpenSpan:
    """A span whose events are recorded and not resolved."""

    start: Any
    end: Any
    span: DeviceSpan


class CudaClock:
    """A ``DeviceClock`` of the current CUDA device. ``cuda`` is ``torch.cuda``, or its twin in tests.

    Raises:
        UsageError: the device does not answer a first event within a second.
    """

    def __init__(self, cuda: Any = torch.cuda, *, max_pending: int = MAX_PENDING) -> None:
        self._cuda = cuda
        self._max_pending = max_pending
        self._free: deque[Any] = deque()
        self._ended: deque[OpenSpan] = deque()
        self._unfinished: list[OpenSpan] = []
        self._device = cuda.current_device()
        self._stream = cuda.Stream()
        self._reference, bracket = self._first_bracket()
        self._reference_ns = 0
        self._tie = ClockTie(bracket)
        self._calibrated_ns = monotonic_ns()

    @property
    def tie(self) -> ClockTie:
        return self._tie

    def begin(self) -> Any | None:
        """None while the queue is full, and while the stream is captured into a graph: events would go into it."""
        if self.pending() >= self._max_pending or self._cuda.is_current_stream_capturing():
            return None
        start = self._event()
        start.record()
        return start

    def end(self, ticket: Any, span: DeviceSpan) -> None:
        end = self._event()
        end.record()
        self._ended.append(OpenSpan(start=ticket, end=end, span=span))

    def drain(self) -> list[ResolvedSpan]:
        with self._cuda.device(self._device):  # a thread starts out on device 0, and would make a context there
            return self._drain()

    def _drain(self) -> list[ResolvedSpan]:
        if monotonic_ns() - self._calibrated_ns >= CALIBRATION_PERIOD_NS:
            self._calibrate()
        waiting = self._unfinished
        while self._ended:
            waiting.append(self._ended.popleft())
        resolved: list[ResolvedSpan] = []
        unfinished: list[OpenSpan] = []
        looked_at = in_a_row = 0
        try:
            for one in waiting:
                if in_a_row == GIVE_UP_AFTER:
                    break
                if one.end.query():
                    resolved.append(self._resolve(one))
                    in_a_row = 0
                else:
                    unfinished.append(one)
                    in_a_row += 1
                looked_at += 1
        except Exception:
            # What was resolved before it is handed out first; it comes up again in the next pass.
            if not resolved:
                raise
        finally:
            self._unfinished = unfinished + waiting[looked_at:]
        return resolved

    def pending(self) -> int:
        return len(self._ended) + len(self._unfinished)

    def _event(self) -> Any:
        try:
            return self._free.popleft()
        except IndexError:
            return self._cuda.Event(enable_timing=True)

    def _resolve(self, one: OpenSpan) -> ResolvedSpan:
        since_reference_ns = _nanoseconds(self._reference.elapsed_time(one.start))
        resolved = ResolvedSpan(
            span=one.span,
            start_ns=self._tie.to_host_ns(self._reference_ns + since_reference_ns),
            duration_ns=_nanoseconds(one.start.elapsed_time(one.end)),
        )
        self._free += (one.start, one.end)
        return resolved

    def _first_bracket(self) -> tuple[Any, Bracket]:
        for _ in range(CALIBRATION_TRIES):
            reference, low_ns, high_ns = self._bracket(within_ns=1_000_000_000)
            if reference is not None:
                return reference, Bracket(device_ns=0, low_ns=low_ns, high_ns=high_ns)
        raise UsageError("the CUDA device does not answer", hint='start before the work does, or use device="cpu"')

    def _calibrate(self) -> None:
        """A new reference, if the device answers soon; else the old one serves on. Called on the drain thread."""
        self._calibrated_ns = monotonic_ns()
        tries = [self._bracket(within_ns=MAX_BRACKET_NS) for _ in range(CALIBRATION_TRIES)]
        answered = [one for one in tries if one[0] is not None]
        if not answered:
            return
        reference, low_ns, high_ns = min(answered, key=lambda one: one[2] - one[1])
        device_ns = self._reference_ns + _nanoseconds(self._reference.elapsed_time(reference))
        self._tie.update(Bracket(device_ns=device_ns, low_ns=low_ns, high_ns=high_ns))
        self._reference, self._reference_ns = reference, device_ns

    def _bracket(self, *, within_ns: int) -> tuple[Any | None, int, int]:
        """An event on our own stream, and the host clock before it and after it was seen; None when it took longer."""
        event = self._cuda.Event(enable_timing=True)
        low_ns = monotonic_ns()
        event.record(self._stream)
        while not event.query():
            if monotonic_ns() - low_ns > within_ns:
                return None, 0, 0
        return event, low_ns, monotonic_ns()


def open_cuda_clock() -> CudaClock:
    """A clock of the current CUDA device.

    Raises:
        UsageError: torch sees none.
    """
    if not torch.cuda.is_available():
        raise UsageError("torch sees no CUDA device", hint='telemetry.start(device="cpu") times on the host')
    return CudaClock()


def _nanoseconds(milliseconds: float) -> int:
    return round(milliseconds * 1e6)
