"""A device clock in memory: tests move its time by hand."""

from telemetry.record.clocks.interface import DeviceSpan, Drained, ResolvedSpan


class ManualClock:
    """A device that works in order and finishes when told to. Implements ``DeviceClock``."""

    def __init__(self, *, room: int = 1024) -> None:
        self.now_ns = 0
        """Device time at which work that is issued now begins and ends."""
        self.calls: list[str] = []
        self._room = room
        self._running: list[ResolvedSpan] = []
        self._finished: list[ResolvedSpan] = []

    def begin(self) -> int | None:
        self.calls.append("begin")
        return self.now_ns if len(self._running) < self._room else None

    def end(self, ticket: int, span: DeviceSpan) -> None:
        self.calls.append("end")
        self._running.append(ResolvedSpan(span=span, start_ns=ticket, duration_ns=self.now_ns - ticket))

    def finish(self) -> None:
        """The device catches up: everything issued so far has ended."""
        self._finished += self._running
        self._running = []

    def drain(self) -> list[Drained]:
        drained, self._finished = self._finished, []
        return list(drained)

    def pending(self) -> int:
        return len(self._running) + len(self._finished)
