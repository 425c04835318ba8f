"""Ties the clock of one CUDA device to the host's, without waiting for the device.

    host     |record|   |query: no|  |query: no|     |query: yes|
                        low -------->low ------------------->high         the event happened between them
    device                                      x

The event is recorded on a separate stream, which only this clock uses. The host queries whether the device has passed
the event. Each "no" raises the lower bound. So the width of a bracket is the last pause between two queries, however
long the device took. The drain thread pauses after each "no", and releases the GIL during the pause. If an event is
still pending at the end of a pass, the next pass continues to query it.

A new reference is made every second, for two reasons: an elapsed time is a 32-bit float of milliseconds, exact to a
microsecond for some seconds only, and the clocks drift:

    host    --|=====|---------------------------|===|--------->      a bracket: the event happened between two readings
    device  ----x-------------------------------x------------->      of the host clock

Each bracket is intersected with the prediction from the previous one, plus a margin for drift. So the error becomes
smaller than that of any single bracket. The drift coefficient is measured over all brackets so far. (veScale's
NDTimeline also uses a reference event with a drift coefficient, but measures it only once.)
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

MAX_DRIFT = 100e-6
"""Healthy clocks drift more slowly than 100 microseconds a second."""
MIN_BASELINE_NS = 5_000_000_000
"""Over a shorter time, the width of the brackets would count as drift."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bracket:
    """Two readings of the host clock. The device passed an event between them."""

    device_ns: int
    """Time of the event on the device's clock, since any fixed time."""
    low_ns: int
    high_ns: int


class ClockTie:
    """Converts device time to host time."""

    def __init__(self, first: Bracket) -> None:
        self._first = first
        self._last = first
        self.drift = 0.0
        """Host seconds per device second, minus one."""

    def error_ns(self, device_ns: int) -> int:
        """The largest error of :meth:`to_host_ns`: half of the width of the newest bracket, plus the drift that is
        possible since then."""
        allowance = round(abs(device_ns - self._last.device_ns) * MAX_DRIFT)
        return (self._last.high_ns - self._last.low_ns) // 2 + allowance

    def to_host_ns(self, device_ns: int) -> int:
        """The time on the host's clock at the device time ``device_ns``."""
        since = device_ns - self._last.device_ns
        return (self._last.low_ns + self._last.high_ns) // 2 + since + round(since * self.drift)

    def update(self, bracket: Bracket) -> None:
        """Add a later bracket."""
        since = bracket.device_ns - self._last.device_ns
        slack = round(since * MAX_DRIFT)
        ahead = since + round(since * self.drift)
        low = max(bracket.low_ns, self._last.low_ns + ahead - slack)
        high = min(bracket.high_ns, self._last.high_ns + ahead + slack)
        # If the brackets contradict each other, a clock jumped (suspend, reset). Then only the new bracket is used.
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


PERIOD_NS = 1_000_000_000
TRIES = 3
QUERY_NS = 10_000_000
"""Longest time for which a pass queries one event."""
QUICK_QUERIES = 10
"""Number of first queries without a pause, because an idle device completes an event within microseconds."""
PAUSE_S = 100e-6
VISIBLE_AFTER_NS = 5_000
"""The longest time from the device's time stamp of an event until the host can see it."""
TIGHT_NS = 500_000
FIRST_WITHIN_NS = 1_000_000_000
"""After this time the first bracket is used even if it is wider than ``TIGHT_NS``. Spans cannot be converted before."""
PRIORITY = -3
"""torch draws streams from pools of 32 in turn. Other code does not use the pool of this priority."""

Answer = tuple[Any, int, int]
"""A completed event, and the host's clock before and after it."""


class DeviceReference:
    """The newest event of one device with a known time on the host's clock. For the drain thread, which has selected
    the device. ``cuda`` is ``torch.cuda``, or its twin in tests."""

    def __init__(self, cuda: Any, *, now: Callable[[], int], pause: Callable[[float], None]) -> None:
        self._cuda = cuda
        self._now = now
        self._pause = pause
        self._stream: Any = None
        self._pending: tuple[Any, int] | None = None
        self._event: Any = None
        self._device_ns = 0
        self._renewed_ns, self._is_due = 0, True
        self._first_query_ns: int | None = None
        self._tie: ClockTie | None = None

    @property
    def is_known(self) -> bool:
        return self._tie is not None

    def renew(self) -> None:
        """Use a new event as the reference, if the period is over and the device answers."""
        now = self._now()
        is_due = self._is_due or self._pending is not None or not self.is_known
        if not is_due and now - self._renewed_ns < PERIOD_NS:
            return
        self._renewed_ns, self._is_due = now, False
        if self._first_query_ns is None:
            self._first_query_ns = now
        answers: list[Answer] = []
        while len(answers) < TRIES and (answer := self._query()) is not None:
            answers.append(answer)
        if answers:
            self._take(*min(answers, key=_width_ns))

    def error_ns(self) -> int:
        """The largest error of the time of an event that happens now. It grows with the age of the reference."""
        assert self._tie is not None
        age_ns = self._now() - self._tie.to_host_ns(self._device_ns)
        return self._tie.error_ns(self._device_ns + age_ns)

    def to_host_ns(self, event: Any) -> int:
        """The time of an event on the host's clock."""
        assert self._tie is not None
        try:
            return self._tie.to_host_ns(self._to_device_ns(event))
        except Exception:
            self._is_due = True  # it may be the reference that fails
            raise

    def _to_device_ns(self, event: Any) -> int:
        return self._device_ns + nanoseconds(self._event.elapsed_time(event))

    def _take(self, event: Any, low_ns: int, high_ns: int) -> None:
        if self._tie is None:
            assert self._first_query_ns is not None
            if high_ns - low_ns <= TIGHT_NS or high_ns - self._first_query_ns >= FIRST_WITHIN_NS:
                self._start(event, low_ns, high_ns)
            return
        try:
            device_ns = self._to_device_ns(event)
        except Exception:
            self._start(event, low_ns, high_ns)  # replaces a reference that fails
            raise
        self._tie.update(Bracket(device_ns=device_ns, low_ns=low_ns, high_ns=high_ns))
        self._event, self._device_ns = event, device_ns

    def _start(self, event: Any, low_ns: int, high_ns: int) -> None:
        self._event, self._device_ns = event, 0
        self._tie = ClockTie(Bracket(device_ns=0, low_ns=low_ns, high_ns=high_ns))

    def _query(self) -> Answer | None:
        """Query the pending event, or a new one. None while it is not completed."""
        event, low_ns = self._pending or self._record()
        self._pending = None  # an event that raises is not queried again
        begun_ns = queried_ns = self._now()
        queries = 0
        while not event.query():
            low_ns = max(low_ns, queried_ns - VISIBLE_AFTER_NS)
            if queried_ns - begun_ns >= QUERY_NS:
                self._pending = event, low_ns
                return None
            queries += 1
            self._pause(0.0 if queries <= QUICK_QUERIES else PAUSE_S)
            queried_ns = self._now()
        return event, low_ns, self._now()

    def _record(self) -> tuple[Any, int]:
        if self._stream is None:
            self._stream = self._cuda.Stream(priority=PRIORITY)
        event = self._cuda.Event(enable_timing=True)
        low_ns = self._now()
        event.record(self._stream)
        return event, low_ns


def nanoseconds(milliseconds: float) -> int:
    """Converts milliseconds, the unit of ``elapsed_time``."""
    return round(milliseconds * 1e6)


def _width_ns(answer: Answer) -> int:
    return answer[2] - answer[1]
