"""The drain thread: asks the device clock now and then what has ended, and records it."""

import threading
from collections.abc import Hashable
from time import monotonic

from telemetry.clocks.interface import DeviceClock, ResolvedSpan
from telemetry.record.sink import Recorder

PERIOD_S = 0.02
FLUSH_S = 5.0


class Drain:
    """Moves resolved spans from a clock to a recorder until stopped."""

    def __init__(self, clock: DeviceClock, recorder: Recorder, *, period_s: float = PERIOD_S) -> None:
        self._clock = clock
        self._recorder = recorder
        self._period_s = period_s
        self._failed = False
        self._line_ends_ns: dict[Hashable, int] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rankscope-drain", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, *, within_s: float = FLUSH_S) -> int:
        """Drain what is under way, for ``within_s`` at most; how many spans were given up. Never waits for the device
        itself: it asks, and asks again."""
        self._stopping.set()
        self._thread.join(within_s)
        if self._thread.is_alive():
            return self._clock.pending()
        deadline = monotonic() + within_s
        pause = threading.Event()
        while self._clock.pending() and not self._failed and monotonic() < deadline:
            self._pass_on()
            pause.wait(self._period_s / 10)
        self._pass_on()
        return self._clock.pending()

    def _run(self) -> None:
        while not self._stopping.wait(self._period_s):
            self._pass_on()

    def _pass_on(self) -> None:
        if self._failed:
            return
        try:
            for resolved in self._clock.drain():
                self._record(resolved)
        except Exception as error:  # the device is lost; spans are refused as the queue fills, and counted
            self._failed = True
            self._recorder.mark("device-clock-failed", repr(error))

    def _record(self, resolved: ResolvedSpan) -> None:
        span = resolved.span
        if span.on_completed is not None:
            span.on_completed()
        start_ns, end_ns = self._in_line(resolved)
        if span.stage is None:
            return
        self._recorder.record_span(
            span.stage,
            start_ns,
            end_ns - start_ns,
            step=span.step,
            microbatch=span.microbatch,
            chunk=span.chunk,
            size_bytes=span.size_bytes,
            peer=span.peer,
            op_seq=span.op_seq,
            issue_ns=span.issue_ns,
        )

    def _in_line(self, resolved: ResolvedSpan) -> tuple[int, int]:
        """Start and end of a span: it starts no sooner than the span before it on its line has ended."""
        line, end_ns = resolved.span.line, resolved.start_ns + resolved.duration_ns
        if line is None:
            return resolved.start_ns, end_ns
        start_ns = min(max(resolved.start_ns, self._line_ends_ns.get(line, 0)), end_ns)
        self._line_ends_ns[line] = end_ns
        return start_ns, end_ns
