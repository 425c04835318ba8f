"""What hosts said while the job ran, as detectors see it: series of numbers, and events.

    fleet.series[Metric.NIC_UP]   one HostSeries for each host and device that has the metric
    fleet.events                  link-down, gpu-xid ... of all hosts, in order of time

Times are the wall clock of each host, as are the spans of its ranks: they are compared within one host, or with room
for the clocks' difference.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

IntVector = npt.NDArray[np.int64]
FloatVector = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSeries:
    """One metric of one device of one host; arrays of one length, ``at_ns`` ascending."""

    host: str
    device: str
    at_ns: IntVector
    value: FloatVector
    """The newest of each period: what a counter stands at."""
    mean: FloatVector
    """Over each period: what a level was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostEvent:
    """Something that happened on a host: see ``telemetry.host_metrics.Happening``."""

    host: str
    device: str
    at_ns: int
    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """All hosts of one attempt, over the time of a view and a little before."""

    series: Mapping[str, tuple[HostSeries, ...]] = field(default_factory=dict)
    events: tuple[HostEvent, ...] = ()
    seen_ns: int = 0
    """Wall clock of the newest thing that any agent told; 0 where none did."""
    moved_ns: int = 0
    """Wall clock at which any rank last recorded anything, as far as agents told; 0 likewise."""

    @property
    def still_s(self) -> float:
        """For how long no rank has recorded anything."""
        return max(0, self.seen_ns - self.moved_ns) / 1e9 if self.moved_ns else 0.0

    def of(self, metric: str) -> tuple[HostSeries, ...]:
        return self.series.get(metric, ())

    def named(self, *names: str) -> list[HostEvent]:
        return [event for event in self.events if event.name in names]


NO_FLEET = Fleet()
