"""The seam of device clocks: spans of work that the host only issues.

    training thread     begin() ---- work is issued ---- end(ticket, span)          never waits
    drain thread                                                   drain() -> resolved spans

An implementation may refuse a span when it has no room (``begin`` gives None); the caller counts it as dropped.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Protocol

from telemetry.stages import SpanClock, Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSpan:
    """A span whose end is not known yet."""

    stage: Stage | None
    """None: an operation without a stage. It is followed to its end, and not recorded."""
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
    """Spans of one line run one after the other: none starts before the one before it has ended."""
    on_completed: Callable[[], None] | None = None
    """Called on the drain thread once the device has completed the work. It must not raise or block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedSpan:
    """A span that the device has finished."""

    span: DeviceSpan
    start_ns: int
    """CLOCK_MONOTONIC of the host, as far as the device's clock can be tied to it."""
    duration_ns: int


class DeviceClock(Protocol):
    """Time as a device keeps it. ``begin`` and ``end`` are called on threads that issue work, ``drain`` and ``pending``
    on the drain thread alone. None of them blocks, and none waits for the device."""

    def begin(self) -> Any | None:
        """Note on the current stream that work begins here; None when there is no room."""

    def end(self, ticket: Any, span: DeviceSpan) -> None:
        """Note on the current stream that the work of ``ticket`` ends here."""

    def drain(self) -> list[ResolvedSpan]:
        """Spans that have ended since the last call. It does not promise the order of their ends."""

    def pending(self) -> int:
        """How many spans have been ended by the host and not drained."""
