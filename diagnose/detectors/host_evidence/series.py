"""What hosts said over a stretch of time, of one device at a time: how much counters grew, what levels were.

Rows of a counter that stood still are missing; one that falls has begun anew.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from diagnose.model.counters import total_growth
from diagnose.model.fleet import Fleet, HostSeries
from diagnose.model.view import FloatVector, RunView
from telemetry.thinning import REPEAT_S, WINDOW_S

WINDOW_NS = int(WINDOW_S * 1e9)
"""Over which agents take the mean of a level, told at its end."""

KNOWN_FOR_NS = int(1.5 * REPEAT_S * 1e9)
"""A counter that stands still is told now and then all the same: one that was not told for longer is not known."""

Place = tuple[str, str]
"""Host, device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """From one wall clock time to another, nanoseconds."""

    first_ns: int
    last_ns: int

    @property
    def length_ns(self) -> int:
        return max(1, self.last_ns - self.first_ns)

    def holds(self, at_ns: int, *, later_ns: int = 0) -> bool:
        """Whether it is within, or up to ``later_ns`` after it: events tell of the time before them."""
        return self.first_ns <= at_ns <= self.last_ns + later_ns


def period_of(view: RunView, first_row: int, last_row: int) -> Period | None:
    """The time of these steps, both included; None where nobody knows the time."""
    if view.step_start_ns is None or not len(view.step_start_ns):
        return None
    last_ns = int(view.step_start_ns[last_row] + view.step_ns[last_row])
    return Period(first_ns=int(view.step_start_ns[first_row]), last_ns=last_ns)


class Measures:
    """Series of a fleet by host and device."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._places: dict[str, Mapping[Place, HostSeries]] = {}

    def knows(self, metric: str) -> bool:
        return bool(self._fleet.of(metric))

    def growth(self, metric: str, place: Place, period: Period) -> float | None:
        """Of a counter, per nanosecond of the period; None where nothing is known."""
        one = self._series(metric, place)
        if one is None or not len(one.at_ns) or one.at_ns[0] >= period.last_ns:
            return None
        if period.first_ns - int(one.at_ns[-1]) > KNOWN_FOR_NS:
            return None
        grown = total_growth(one)
        # Relative times: nanoseconds since 1970 are too long for a float.
        at_ns = (one.at_ns - period.first_ns).astype(np.float64)
        first, last = np.interp([0.0, float(period.length_ns)], at_ns, grown)
        return float(last - first) / period.length_ns

    def levels(self, metric: str, place: Place, period: Period) -> FloatVector:
        """Means of all stretches that end within, and of one that begins there."""
        one = self._series(metric, place)
        if one is None:
            return np.zeros(0)
        within = (one.at_ns >= period.first_ns) & (one.at_ns <= period.last_ns + WINDOW_NS)
        return np.asarray(one.mean[within])

    def growths(self, metric: str, places: Sequence[Place], period: Period) -> FloatVector:
        """NaN where nothing is known."""
        told = [self.growth(metric, place, period) for place in places]
        return np.array([np.nan if one is None else one for one in told])

    def mean_levels(self, metric: str, places: Sequence[Place], period: Period) -> FloatVector:
        """NaN where nothing is known."""
        told = [self.levels(metric, place, period) for place in places]
        return np.array([one.mean() if len(one) else np.nan for one in told])

    def _series(self, metric: str, place: Place) -> HostSeries | None:
        if metric not in self._places:
            self._places[metric] = {(one.host, one.device): one for one in self._fleet.of(metric)}
        return self._places[metric].get(place)
