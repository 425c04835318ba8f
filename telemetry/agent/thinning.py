"""Reduces the readings of samplers to a few rows.

    samples  | | | | |   | | | | |       a level (power, load): its mean over the window
    windows  '---5 s---' '---5 s---'     a counter: its value at the window's end, if it has changed since it was
                                         last shipped, and once a minute in any case

For a host with 100 levels and 1000 constant counters, this gives 37 rows a second instead of 1100.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import fmean

from telemetry.agent.samplers.interface import Reading
from telemetry.host_metrics import REPEAT_S, WINDOW_S

NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSample:
    """A row of ``host_samples``, without the host."""

    device: str
    metric: str
    at_ns: int
    value: float


@dataclass(slots=True)
class Thinning:
    """Reduces the readings of one sampler to samples. If ``window_s`` is 0, each reading is a sample."""

    window_s: float = WINDOW_S
    _opened_ns: int = 0
    _newest_ns: int = 0
    _levels: defaultdict[tuple[str, str], list[float]] = field(default_factory=lambda: defaultdict(list))
    _counters: dict[tuple[str, str], float] = field(default_factory=dict)
    _shipped: dict[tuple[str, str], tuple[float, int]] = field(default_factory=dict)
    """Value and time of the last sample of each counter."""

    def add(self, at_ns: int, readings: Iterable[Reading]) -> list[HostSample]:
        """Add the readings of one time. Returns the samples of the window that ended before them."""
        if not self.window_s:
            return [
                HostSample(device=reading.device, metric=reading.metric, at_ns=at_ns, value=reading.value)
                for reading in readings
            ]
        ended = self.end() if self._opened_ns and not self._lasts(at_ns) else []
        self._opened_ns = self._opened_ns or at_ns
        self._newest_ns = at_ns
        for reading in readings:
            key = reading.metric, reading.device
            if reading.is_counter:
                self._counters[key] = reading.value
            else:
                self._levels[key].append(reading.value)
        return ended

    def end(self) -> list[HostSample]:
        """End the window and return its samples."""
        at_ns = self._newest_ns
        means = {key: fmean(values) for key, values in self._levels.items()}
        moved = {key: value for key, value in self._counters.items() if self._is_due(key, value, at_ns)}
        self._shipped.update({key: (value, at_ns) for key, value in moved.items()})
        self._opened_ns = 0
        self._levels.clear()
        self._counters.clear()
        return [
            HostSample(device=device, metric=metric, at_ns=at_ns, value=value)
            for (metric, device), value in (means | moved).items()
        ]

    def _lasts(self, at_ns: int) -> bool:
        """Whether the open window contains this time. A clock that was set back ends the window."""
        return 0 <= at_ns - self._opened_ns < self.window_s * NS_PER_S

    def _is_due(self, key: tuple[str, str], value: float, at_ns: int) -> bool:
        shipped_value, shipped_ns = self._shipped.get(key, (None, 0))
        return shipped_value != value or abs(at_ns - shipped_ns) >= REPEAT_S * NS_PER_S
