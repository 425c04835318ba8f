"""A CUDA device in memory: the part of ``torch.cuda`` that the CUDA clock asks for, in time moved by hand.

Work on a stream ends when the device's time has passed it. What would wait for the device is not there at all: a clock
that called it would fail.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic_ns


class ManualCuda:
    """Its time is that of ``host_ns()`` plus what :meth:`keep_busy` has queued on the compute stream."""

    def __init__(self) -> None:
        self.busy_until_ns = 0
        self.capturing = False
        self.made_events = 0
        outer = self

        class Stream:
            pass

        class Event:
            def __init__(self, *, enable_timing: bool) -> None:
                assert enable_timing
                outer.made_events += 1
                self.at_ns = 0

            def record(self, stream: Stream | None = None) -> None:
                now = monotonic_ns()
                self.at_ns = now if stream is not None else max(now, outer.busy_until_ns)

            def query(self) -> bool:
                return monotonic_ns() >= self.at_ns

            def elapsed_time(self, end: "Event") -> float:
                assert self.query()
                assert end.query()
                return (end.at_ns - self.at_ns) / 1e6

        self.Stream = Stream
        self.Event = Event

    def keep_busy(self, for_ns: int) -> None:
        """Queue a kernel on the compute stream."""
        self.busy_until_ns = max(self.busy_until_ns, monotonic_ns()) + for_ns

    def current_device(self) -> int:
        return 0

    @contextmanager
    def device(self, index: int) -> Iterator[None]:
        assert index == 0
        yield

    def is_current_stream_capturing(self) -> bool:
        return self.capturing
