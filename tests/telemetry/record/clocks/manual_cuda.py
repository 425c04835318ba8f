"""CUDA in memory: the parts of ``torch.cuda`` and of the driver that the CUDA clock uses, with CUDA's rules.

Functions that wait for a device do not exist here: a clock that calls one fails. The rules:

- Work and events of a stream happen in its order. Streams are independent. With one queue (as under
  ``CUDA_DEVICE_MAX_CONNECTIONS=1``), an event happens after all work that was issued before it.
- While a stream captures in the global mode, only relaxed threads may call ``query`` or ``elapsed_time`` or create
  streams. A forbidden call raises and invalidates the capture. Recording on another stream is allowed.
- An event recorded by a capture belongs to its graph. A query of it raises and invalidates the capture.
- An event belongs to the device of the first stream on which it is recorded.
- Selecting a device, or using one of its streams, creates a context there. Switching back does not (torch sees to it).
- ``current_device`` and ``get_device_properties`` initialise CUDA.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic_ns
from types import SimpleNamespace


class ForbiddenCall(RuntimeError):
    """CUDA's ``cudaErrorStreamCaptureUnsupported``."""


class Capture:
    """A graph under construction, and then a graph."""

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.is_valid = True
        self.work_ns = 0


class ManualStream:
    """Work of one device in order."""

    def __init__(self, device: int) -> None:
        self.device = device
        self.busy_until_ns = 0
        self.capture: Capture | None = None
        self.last: ManualEvent | None = None
        """The event that was recorded last on this stream."""

    def fail_last(self, call: str) -> "ManualEvent":
        """The event that was recorded last raises once."""
        assert self.last is not None
        self.last.fail_next(call)
        return self.last


class _Thread(threading.local):
    def __init__(self) -> None:
        self.device = 0
        self.streams: dict[int, ManualStream] = {}
        self.is_relaxed = False


class ManualEvent:
    """An event. ``fail_next`` makes its calls raise."""

    def __init__(self, cuda: "ManualCuda") -> None:
        self._cuda = cuda
        self._failures: Counter[str] = Counter()
        self.at_ns = 0
        self.device: int | None = None
        self.capture: Capture | None = None

    def fail_next(self, call: str, times: int = 1) -> None:
        self._failures[call] += times

    def record(self, stream: ManualStream | None = None) -> None:
        self._may_fail("record")
        stream = stream or self._cuda.current_stream()
        self._cuda.use(stream.device)
        assert self.device in (None, stream.device), "event device does not match the stream's device"
        self.device, self.capture = stream.device, stream.capture
        self.at_ns = self._cuda.reached_ns(stream)
        stream.last = self

    def query(self) -> bool:
        self._cuda.forbid_in_capture("query")
        self._may_fail("query")
        if self.capture is not None:
            self.capture.is_valid = False
            raise ForbiddenCall("query of a captured event")
        return self._cuda.now() >= self.at_ns

    def elapsed_time(self, end: "ManualEvent") -> float:
        self._cuda.forbid_in_capture("elapsed_time")
        self._may_fail("elapsed_time")
        assert self.device == end.device
        assert self.query()
        assert end.query()
        return (end.at_ns - self.at_ns) / 1e6

    def _may_fail(self, call: str) -> None:
        if self._cuda.is_lost or self._failures[call] > 0:
            self._failures[call] -= 1
            raise RuntimeError("CUDA error: an illegal memory access was encountered")


class ManualCuda:
    """``torch.cuda`` and ``CudaDriver`` in one. By default it starts initialised, with a context on device 0."""

    def __init__(
        self,
        *,
        num_devices: int = 1,
        fresh: bool = False,
        one_queue: bool = False,
        now: Callable[[], int] = monotonic_ns,
    ) -> None:
        self.now = now
        self.num_devices = num_devices
        self.one_queue = one_queue
        self.initialized = not fresh
        self.contexts: set[int] = set() if fresh else {0}
        self.made: list[ManualEvent] = []
        self.streams: list[ManualStream] = []
        self.forbidden: list[str] = []
        self.asked_in_captures = 0
        """Calls that only a relaxed thread may make, made while a stream captured."""
        self.next_fails = ""
        """Which call of the next new event raises once."""
        self.is_lost = False
        """Every event raises."""
        self._default = [ManualStream(index) for index in range(num_devices)]
        self._captures: list[Capture] = []
        self._thread = _Thread()

    @property
    def made_events(self) -> int:
        return len(self.made)

    # --- torch.cuda -------------------------------------------------------------------------------------------

    def Event(self, *, enable_timing: bool) -> ManualEvent:
        assert enable_timing
        self.made.append(event := ManualEvent(self))
        event.fail_next(self.next_fails)
        self.next_fails = ""
        return event

    def Stream(self, *, priority: int = 0) -> ManualStream:
        assert priority <= 0
        self.forbid_in_capture("stream creation")
        self.use(self._thread.device)
        self.streams.append(ManualStream(self._thread.device))
        return self.streams[-1]

    def is_initialized(self) -> bool:
        return self.initialized

    def device_count(self) -> int:
        return self.num_devices

    def current_device(self) -> int:
        self.initialized = True
        return self._thread.device

    def set_device(self, index: int) -> None:
        self.use(index)
        self._thread.device = index

    @contextmanager
    def device(self, index: int) -> Iterator[None]:
        before = self._thread.device
        self.set_device(index)
        try:
            yield
        finally:
            self._thread.device = before

    def current_stream(self, device: int | None = None) -> ManualStream:
        index = self._thread.device if device is None else device
        return self._thread.streams.get(index, self._default[index])

    @contextmanager
    def stream(self, stream: ManualStream) -> Iterator[None]:
        streams = self._thread.streams
        before = streams.get(stream.device, self._default[stream.device])
        streams[stream.device] = stream
        try:
            yield
        finally:
            streams[stream.device] = before

    def get_device_properties(self, index: int) -> SimpleNamespace:
        """Makes no context. Initialises CUDA."""
        self.initialized = True
        return SimpleNamespace(uuid=f"gpu-of-index-{index}")

    def is_current_stream_capturing(self) -> bool:
        return self.current_stream().capture is not None

    # --- the driver -------------------------------------------------------------------------------------------

    @contextmanager
    def relaxed_captures(self) -> Iterator[None]:
        before, self._thread.is_relaxed = self._thread.is_relaxed, True
        try:
            yield
        finally:
            self._thread.is_relaxed = before

    def has_context(self, index: int) -> bool:
        return index in self.contexts

    # --- what programs do -------------------------------------------------------------------------------------

    def keep_busy(self, for_ns: int, stream: ManualStream | None = None) -> None:
        """Queue a kernel on the current stream, or into the graph that it captures."""
        stream = stream or self.current_stream()
        self.use(stream.device)
        if stream.capture is not None:
            stream.capture.work_ns += for_ns
        else:
            stream.busy_until_ns = max(stream.busy_until_ns, self.now()) + for_ns

    @contextmanager
    def graph(self, mode: str = "global") -> Iterator[Capture]:
        """Capture on a stream of its own, as ``torch.cuda.graph`` does. Raises as it ends if it became invalid."""
        stream = ManualStream(self._thread.device)
        stream.capture = capture = Capture(mode)
        self._captures.append(capture)
        try:
            with self.stream(stream):
                yield capture
        finally:
            self._captures.remove(capture)
            stream.capture = None
        if not capture.is_valid:
            raise ForbiddenCall("the capture was invalidated")

    def replay(self, graph: Capture) -> None:
        self.keep_busy(graph.work_ns)

    def reached_ns(self, stream: ManualStream) -> int:
        """When an event that is recorded now happens."""
        ahead = [*self._default, *self.streams] if self.one_queue else [stream]
        return max(self.now(), *(one.busy_until_ns for one in ahead))

    # --- the rules --------------------------------------------------------------------------------------------

    def use(self, device: int) -> None:
        self.initialized = True
        self.contexts.add(device)

    def forbid_in_capture(self, call: str) -> None:
        strict = [capture for capture in list(self._captures) if capture.mode == "global"]
        if not strict:
            return
        if self._thread.is_relaxed:
            self.asked_in_captures += 1
            return
        for capture in strict:
            capture.is_valid = False
        self.forbidden.append(call)
        raise ForbiddenCall(f"{call} while a stream is capturing")
