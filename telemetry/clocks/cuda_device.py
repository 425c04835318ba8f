"""Spans of one CUDA device: pooled pairs of events, from the streams that do the work to the drain thread.

training threads    record() ... queue()          free events ---> recorded
drain thread        drain()                       asked: done? ---> resolved, and the events are free again
"""

from collections import deque
from dataclasses import dataclass
from typing import Any

from telemetry.clocks.cuda_reference import DeviceReference, nanoseconds
from telemetry.clocks.interface import ClockError, CompletedSpan, DeviceSpan, Drained, ResolvedSpan

GIVE_UP_AFTER = 64
"""Unfinished spans in a row after which a pass over the queue ends: what was issued later seldom ends sooner."""
MAX_ERRORS = 3
"""So often an event may raise before it is no longer asked whether the work is completed."""


@dataclass(slots=True, kw_only=True)
class OpenSpan:
    """A span whose events are recorded and not resolved."""

    start: Any
    end: Any
    span: DeviceSpan
    num_errors: int = 0
    is_open: bool = True


class CudaDevice:
    """The queue of one device. ``cuda`` is ``torch.cuda``, or its twin in tests."""

    def __init__(self, index: int, cuda: Any, reference: DeviceReference) -> None:
        self.index = index
        self._cuda = cuda
        self._reference = reference
        self._free: deque[Any] = deque()
        self._ended: deque[OpenSpan] = deque()
        self._unfinished: list[OpenSpan] = []

    def record(self) -> Any:
        """An event on the device's stream that is current on this thread."""
        try:
            event = self._free.popleft()
        except IndexError:
            event = self._cuda.Event(enable_timing=True)
        event.record(self._cuda.current_stream(self.index))
        return event

    def give_back(self, event: Any) -> None:
        """Use an event again that no graph holds and that did not fail."""
        self._free.append(event)

    def queue(self, start: Any, end: Any, span: DeviceSpan) -> None:
        self._ended.append(OpenSpan(start=start, end=end, span=span))

    def pending(self) -> int:
        return len(self._ended) + len(self._unfinished)

    def error_ns(self) -> int:
        """How far the start of a span may be off."""
        return self._reference.error_ns()

    def drain(self) -> list[Drained]:
        """What became of spans since the last call. The caller has selected the device."""
        drained: list[Drained] = []
        try:
            self._reference.renew()
        except Exception as error:
            drained.append(ClockError(error=error))
        if self._reference.is_known:
            self._ask_all(drained)
        return drained

    def _ask_all(self, drained: list[Drained]) -> None:
        waiting = self._unfinished
        while self._ended:
            waiting.append(self._ended.popleft())
        unfinished: list[OpenSpan] = []
        asked = in_a_row = 0
        for one in waiting:
            if in_a_row == GIVE_UP_AFTER:
                break
            drained += (answer := self._ask(one))
            in_a_row = 0 if answer else in_a_row + 1
            if one.is_open:
                unfinished.append(one)
            asked += 1
        self._unfinished = unfinished + waiting[asked:]

    def _ask(self, one: OpenSpan) -> list[Drained]:
        try:
            if not one.end.query():
                return []
        except Exception as error:
            return [self._failed(one, error)]
        one.is_open = False
        if one.num_errors:
            return [CompletedSpan(span=one.span)]
        try:
            return [self._resolve(one)]
        except Exception as error:
            return [ClockError(error=error, span=one.span), CompletedSpan(span=one.span)]

    def _failed(self, one: OpenSpan, error: Exception) -> ClockError:
        """The span is not timed, and its events are not used again. Its completion is asked for some more times."""
        one.num_errors += 1
        one.is_open = one.span.on_completed is not None and one.num_errors < MAX_ERRORS
        return ClockError(error=error, span=one.span if one.num_errors == 1 else None)

    def _resolve(self, one: OpenSpan) -> ResolvedSpan:
        start_ns = self._reference.to_host_ns(one.start)
        duration_ns = nanoseconds(one.start.elapsed_time(one.end))
        self.give_back(one.start)
        self.give_back(one.end)
        return ResolvedSpan(span=one.span, start_ns=start_ns, duration_ns=duration_ns)
