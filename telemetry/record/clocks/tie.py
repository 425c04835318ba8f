"""Tying a device's clock to the host's, and keeping it tied while the two drift apart.

    host    --|=====|---------------------------|===|--------->      a bracket: the event happened between two readings
    device  ----x-------------------------------x------------->      of the host clock

Each bracket is cut with where the one before says that the event must have been, so the tie gets tighter than any
single bracket; what the clocks may have drifted since is allowed for. The drift coefficient is measured over all
brackets so far. (veScale's NDTimeline ties its device timers to a reference event and to a drift coefficient so; it
measures the latter once.)
"""

from dataclasses import dataclass

MAX_DRIFT = 100e-6
"""No healthy pair of clocks drifts faster: 100 microseconds a second."""
MIN_BASELINE_NS = 5_000_000_000
"""Drift is not measured over less: the brackets' own width would show as drift."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bracket:
    """The device passed an event between two readings of the host clock."""

    device_ns: int
    """On the device's clock, from any fixed zero."""
    low_ns: int
    high_ns: int


class ClockTie:
    """From device time to host time."""

    def __init__(self, first: Bracket) -> None:
        self._first = first
        self._last = first
        self.drift = 0.0
        """Host seconds per device second, less one."""

    def error_ns(self, device_ns: int) -> int:
        """How far :meth:`to_host_ns` may be off: half of the last bracket, and the drift allowed between."""
        allowance = round(abs(device_ns - self._last.device_ns) * MAX_DRIFT)
        return (self._last.high_ns - self._last.low_ns) // 2 + allowance

    def to_host_ns(self, device_ns: int) -> int:
        """The host's clock when the device's showed ``device_ns``."""
        since = device_ns - self._last.device_ns
        return (self._last.low_ns + self._last.high_ns) // 2 + since + round(since * self.drift)

    def update(self, bracket: Bracket) -> None:
        """Take in another bracket, later than those before."""
        since = bracket.device_ns - self._last.device_ns
        slack = round(since * MAX_DRIFT)
        ahead = since + round(since * self.drift)
        low = max(bracket.low_ns, self._last.low_ns + ahead - slack)
        high = min(bracket.high_ns, self._last.high_ns + ahead + slack)
        # Brackets that contradict each other: a clock jumped (suspend, reset). The new one is right from here on.
        cut = Bracket(device_ns=bracket.device_ns, low_ns=low, high_ns=high) if low <= high else bracket
        self._first = self._first if low <= high else bracket
        self._last = cut
        self._measure_drift()

    def _measure_drift(self) -> None:
        baseline = self._last.device_ns - self._first.device_ns
        if baseline < MIN_BASELINE_NS:
            return
        passed = (self._last.low_ns + self._last.high_ns - self._first.low_ns - self._first.high_ns) / 2
        self.drift = max(-MAX_DRIFT, min(MAX_DRIFT, passed / baseline - 1))
