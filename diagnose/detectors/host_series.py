"""Host metrics and events over a period: growth, levels, busy processes, and stops.

A counter that did not change has no rows. A counter that falls has restarted.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from diagnose.model.fleet import Fleet, HostEvent, HostSeries
from diagnose.model.gpus import total_growth
from diagnose.model.operations import Floats
from diagnose.model.view import RunView
from telemetry.host_metrics import REPEAT_S, WINDOW_S, Happening

WINDOW_NS = int(WINDOW_S * 1e9)
"""Agents send a level as the mean over windows of this length. The mean has the time of the window's end."""
KNOWN_FOR_NS = int(1.5 * REPEAT_S * 1e9)
"""A counter that does not change is sent again within this time. Later its value is unknown."""
Place = tuple[str, str]
"""Host, device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """A time range by the wall clock, in nanoseconds."""

    first_ns: int
    last_ns: int

    @property
    def length_ns(self) -> int:
        return max(1, self.last_ns - self.first_ns)

    def holds(self, at_ns: int, *, later_ns: int = 0) -> bool:
        """Whether a time is in the period, or up to ``later_ns`` after it: events describe the time before them."""
        return self.first_ns <= at_ns <= self.last_ns + later_ns


def period_of(view: RunView, first_row: int, last_row: int) -> Period | None:
    """The time of these steps, both included. None if it is unknown."""
    if view.step_start_ns is None or not len(view.step_start_ns):
        return None
    last_ns = int(view.step_start_ns[last_row] + view.step_ns[last_row])
    return Period(first_ns=int(view.step_start_ns[first_row]), last_ns=last_ns)


class Measures:
    """Series of a fleet by host and device."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._places: dict[str, Mapping[Place, HostSeries]] = {}

    def growth(self, metric: str, place: Place, period: Period) -> float | None:
        """Growth of a counter per nanosecond of the period. None if it is unknown."""
        series = self._series(metric, place)
        if series is None or not len(series.at_ns) or series.at_ns[0] >= period.last_ns:
            return None
        if period.first_ns - int(series.at_ns[-1]) > KNOWN_FOR_NS:
            return None
        # Relative times: nanoseconds since 1970 are too long for a float.
        at_ns = (series.at_ns - period.first_ns).astype(np.float64)
        first, last = np.interp([0.0, float(period.length_ns)], at_ns, total_growth(series))
        return float(last - first) / period.length_ns

    def levels(self, metric: str, place: Place, period: Period) -> Floats:
        """Mean levels of all samples that overlap the period."""
        series = self._series(metric, place)
        if series is None:
            return np.zeros(0)
        within = (series.at_ns >= period.first_ns) & (series.at_ns <= period.last_ns + WINDOW_NS)
        return np.asarray(series.mean[within])

    def growths(self, metric: str, places: Sequence[Place], period: Period) -> Floats:
        """Growth of a counter at each place. NaN if it is unknown."""
        grown = [self.growth(metric, place, period) for place in places]
        return np.array([np.nan if growth is None else growth for growth in grown])

    def mean_levels(self, metric: str, places: Sequence[Place], period: Period) -> Floats:
        """Mean level at each place. NaN if it is unknown."""
        known = [self.levels(metric, place, period) for place in places]
        return np.array([levels.mean() if len(levels) else np.nan for levels in known])

    def _series(self, metric: str, place: Place) -> HostSeries | None:
        if metric not in self._places:
            self._places[metric] = {(series.host, series.device): series for series in self._fleet.of(metric)}
        return self._places[metric].get(place)


@dataclass(frozen=True, slots=True, kw_only=True)
class Taker:
    """A process and the amount that it uses: of cores, or bytes of memory."""

    pid: str
    name: str
    amount: float
    device: str
    """``core3``. Empty: several cores, or memory."""

    @property
    def process(self) -> str:
        return f"{self.pid} {self.name}"

    def describe(self, host: str) -> str:
        """What the process uses, in words: ``pid 4711 stress-ng uses 0.90 of core 3 of gpu-03``."""
        where = f"core {self.device.removeprefix('core')}" if self.device else "the cores"
        return f"pid {self.process} uses {self.amount:.2f} of {where} of {host}"


def takers(events: Iterable[HostEvent]) -> list[Taker]:
    """Processes in texts such as ``4711 stress-ng (cpu) 0.9``, the largest amount first. Other texts are ignored."""
    known = [taker for event in events if (taker := _taker(event)) is not None]
    return sorted(known, key=lambda taker: -taker.amount)


def _taker(event: HostEvent) -> Taker | None:
    words = event.text.split()
    try:
        amount = float(words[-1])
    except (ValueError, IndexError):
        return None
    if len(words) < 3:
        return None
    return Taker(pid=words[0], name=" ".join(words[1:-1]), amount=amount, device=event.device)


def stops_of(places: Sequence[Place], events: Iterable[HostEvent], period: Period) -> list[int]:
    """Duration of each stop of these ranks' processes within the period, nanoseconds."""
    since: dict[Place, int] = {}
    stops: list[tuple[int, int]] = []
    for event in events:
        place = event.host, event.device
        if place not in places:
            continue
        if event.name == Happening.RANK_STOPPED:
            since.setdefault(place, event.at_ns)
        elif event.name == Happening.RANK_CONTINUED and place in since:
            stops.append((since.pop(place), event.at_ns))
    stops += [(began_ns, period.last_ns) for began_ns in since.values()]
    lasted = [min(last, period.last_ns) - max(first, period.first_ns) for first, last in stops]
    return [length for length in lasted if length > 0]
