"""The interface of device clocks: for spans of work that the host only issues.

    training thread     begin() ---- work is issued ---- end(ticket, span)          never waits
    drain thread                                                   drain() -> spans resolved, lost, completed

An implementation may refuse a span if it has no room (``begin`` returns None); the caller counts it as dropped.

The module holds one implementation: a device clock in memory, whose time is set by hand.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from time import monotonic_ns, time_ns
from typing import Any, Protocol

from telemetry.stages import SpanClock, Stage

TRIES = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """One instant on both clocks of a host."""

    monotonic_ns: int
    wall_ns: int
    error_ns: int = 0
    """The largest time between the two readings; 0 if it is not known."""

    def to_wall_ns(self, at_ns: int) -> int:
        """Nanoseconds since the epoch of a CLOCK_MONOTONIC time, or of an array of them."""
        return at_ns + (self.wall_ns - self.monotonic_ns)


def measure_anchor(tries: int = TRIES) -> Anchor:
    """Reads the wall clock between two readings of the monotonic clock. Uses the tightest of ``tries``."""
    return min((_bracket() for _ in range(tries)), key=lambda anchor: anchor.error_ns)


def _bracket() -> Anchor:
    before = monotonic_ns()
    wall = time_ns()
    after = monotonic_ns()
    return Anchor(monotonic_ns=(before + after) // 2, wall_ns=wall, error_ns=after - before)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSpan:
    """A span whose end is not known yet."""

    stage: Stage | None
    """None for an operation without a stage. Such an operation is followed until it ends, but not recorded."""
    issue_ns: int
    """CLOCK_MONOTONIC when the host issued it."""
    step: int
    microbatch: int = -1
    chunk: int = -1
    size_bytes: int = 0
    peer: int = -1
    op_seq: int = 0
    clock: SpanClock = SpanClock.DEVICE
    line: Hashable | None = None
    """Spans of one line run one after the other: a span starts after the previous span has ended."""
    on_completed: Callable[[], None] | None = None
    """Called on the drain thread once the device has completed the work, also if its timing failed, and for work that
    was captured in a graph. Not called for a span that ``begin`` refused, or if the device does not answer any more. It
    must not raise or block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedSpan:
    """A span that the device has finished."""

    span: DeviceSpan
    start_ns: int
    """CLOCK_MONOTONIC of the host, as far as the device's clock can be tied to it."""
    duration_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedSpan:
    """A span that began or ended inside the capture of a graph. It has no time: the device did not run it."""

    span: DeviceSpan


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockError:
    """An error of the clock."""

    error: Exception
    span: DeviceSpan | None = None
    """The span that cannot be timed because of it. Each span is reported once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletedSpan:
    """The device has completed the work of a span whose timing failed."""

    span: DeviceSpan


Drained = ResolvedSpan | CapturedSpan | ClockError | CompletedSpan


class DeviceClock(Protocol):
    """The clock of a device. ``begin`` and ``end`` are called on threads that issue work, ``drain`` and ``pending`` on
    another thread, one at a time. The methods do not wait for the device. ``drain`` may take some milliseconds."""

    def begin(self) -> Any | None:
        """Record the start of work on the current stream. Returns a ticket, or None if there is no room."""

    def end(self, ticket: Any, span: DeviceSpan) -> None:
        """Record the end of the work of ``ticket`` on the current stream."""

    def drain(self) -> Sequence[Drained]:
        """Results of spans since the last call. They need not be in the order of their ends."""

    def pending(self) -> int:
        """Number of spans that the host has ended and that are not drained."""

    def device_uuid(self) -> str:
        """UUID of the first device with a span, as torch writes it. Empty before there is one. Called on the thread
        that calls ``drain``."""


class ManualClock:
    """A device that works in order and completes its work on :meth:`finish`. Implements ``DeviceClock``."""

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
        """Complete all work issued so far."""
        self._finished += self._running
        self._running = []

    def drain(self) -> list[Drained]:
        drained, self._finished = self._finished, []
        return list(drained)

    def pending(self) -> int:
        return len(self._running) + len(self._finished)

    def device_uuid(self) -> str:
        return "manual"
