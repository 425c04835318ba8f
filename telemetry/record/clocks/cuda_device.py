"""Spans of one CUDA device: pooled pairs of events, from the streams that do the work to the drain thread.

training threads    record() ... queue()          free events ---> recorded
drain thread        drain()                       query: done? ---> resolved, and the events are free again

Events of one stream complete in order. So each stream is queried up to its first event that is not completed. A blocked
stream delays no other stream.
"""

from collections import deque
from dataclasses import dataclass
from typing import Any

from telemetry.record.clocks.cuda_reference import DeviceReference, nanoseconds
from telemetry.record.clocks.interface import ClockError, CompletedSpan, DeviceSpan, Drained, ResolvedSpan

MAX_ERRORS = 3
"""After this number of errors, the completion of an event is not queried any more."""


@dataclass(slots=True, kw_only=True)
class OpenSpan:
    """A span whose events are recorded and not resolved."""

    start: Any
    end: Any
    stream: Any
    """The stream on which the end is recorded."""
    span: DeviceSpan
    number: int = 0
    """Position in the queue of its device."""
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
        self._unfinished: dict[Any, deque[OpenSpan]] = {}
        """Stream -> its spans, in the order of their ends."""
        self._num_unfinished = 0
        self._num_queued = 0

    def record(self) -> tuple[Any, Any]:
        """An event on the device's stream that is current on this thread, and the stream."""
        try:
            event = self._free.popleft()
        except IndexError:
            event = self._cuda.Event(enable_timing=True)
        stream = self._cuda.current_stream(self.index)
        event.record(stream)
        return event, stream

    def give_back(self, event: Any) -> None:
        """Use an event again that belongs to no graph and did not fail."""
        self._free.append(event)

    def queue(self, start: Any, span: DeviceSpan) -> None:
        """Record the end of a span now, and queue the span."""
        end, stream = self.record()
        self._ended.append(OpenSpan(start=start, end=end, stream=stream, span=span))

    def pending(self) -> int:
        return len(self._ended) + self._num_unfinished

    def error_ns(self) -> int:
        """The largest error of the start of a span."""
        return self._reference.error_ns()

    def drain(self) -> list[Drained]:
        """Results of spans since the last call. The caller has selected the device."""
        drained: list[Drained] = []
        try:
            self._reference.renew()
        except Exception as error:
            drained.append(ClockError(error=error))
        if self._reference.is_known:
            self._query_all(drained)
        return drained

    def _query_all(self, drained: list[Drained]) -> None:
        """Query all streams. Results are in the order of the queue: spans of one line may end on several streams."""
        self._sort_by_stream()
        answers: list[tuple[int, list[Drained]]] = []
        for stream, waiting in list(self._unfinished.items()):
            answers += self._query_stream(waiting)
            if not waiting:
                del self._unfinished[stream]
        self._num_unfinished = sum(map(len, self._unfinished.values()))
        for _, answer in sorted(answers, key=lambda numbered: numbered[0]):
            drained += answer

    def _sort_by_stream(self) -> None:
        while self._ended:
            entry = self._ended.popleft()
            entry.number = self._num_queued
            self._num_queued += 1
            self._num_unfinished += 1
            self._unfinished.setdefault(entry.stream, deque()).append(entry)

    def _query_stream(self, waiting: deque[OpenSpan]) -> list[tuple[int, list[Drained]]]:
        """Answers by number, up to the first span that is not completed. A failed span may stay in ``waiting``."""
        answers: list[tuple[int, list[Drained]]] = []
        failed: list[OpenSpan] = []
        while waiting and (answer := self._query(waiting[0])):
            entry = waiting.popleft()
            answers.append((entry.number, answer))
            if entry.is_open:
                failed.append(entry)
        waiting.extendleft(reversed(failed))
        return answers

    def _query(self, entry: OpenSpan) -> list[Drained]:
        try:
            if not entry.end.query():
                return []
        except Exception as error:
            return [self._failed(entry, error)]
        entry.is_open = False
        if entry.num_errors:
            return [CompletedSpan(span=entry.span)]
        try:
            return [self._resolve(entry)]
        except Exception as error:
            return [ClockError(error=error, span=entry.span), CompletedSpan(span=entry.span)]

    def _failed(self, entry: OpenSpan, error: Exception) -> ClockError:
        """The span is not timed, and its events are not used again. Its completion is queried some more times."""
        entry.num_errors += 1
        entry.is_open = entry.span.on_completed is not None and entry.num_errors < MAX_ERRORS
        return ClockError(error=error, span=entry.span if entry.num_errors == 1 else None)

    def _resolve(self, entry: OpenSpan) -> ResolvedSpan:
        start_ns = self._reference.to_host_ns(entry.start)
        duration_ns = nanoseconds(entry.start.elapsed_time(entry.end))
        self.give_back(entry.start)
        self.give_back(entry.end)
        return ResolvedSpan(span=entry.span, start_ns=start_ns, duration_ns=duration_ns)
