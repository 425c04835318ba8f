"""What hosts said while the job ran, as detectors see it: series of numbers, and events.

    fleet.series[Metric.NIC_UP]   one HostSeries for each host and device that has the metric
    fleet.events                  link-down, gpu-xid ... of all hosts, in order of time

Times are the wall clock of each host, as are the spans of its ranks: they are compared within one host, or with room
for the clocks' difference.

Ask a reader for what hosts said: the :class:`diagnose.model.fleet.Fleet` of a view.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from telemetry.host_metrics import Happening, Metric
from telemetry.stores.interface import Reader
from telemetry.stores.queries import Heartbeats
from telemetry.stores.queries.hosts import LAST_NS, HostEvents, HostSamples

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


NS_PER_S = 1_000_000_000
MARGIN_NS = 60 * NS_PER_S
"""Before the first step, so that a counter's level before it is known; and after the last."""
SILENT_NS = 15 * 60 * NS_PER_S
"""Looked back where no step is finished."""
MAX_PERIODS = 900
"""Of one series: longer times are looked at in coarser periods."""
MANY_HOSTS = 64
"""Above it, cores and disks are left out, and periods are coarser."""
UNREAD = {
    *(Metric.NIC_CARRIER_DOWNS, Metric.NIC_CARRIER_UPS, Metric.NIC_SPEED_MBPS, Metric.RDMA_UP, Metric.RDMA_RATE_GBPS),
    *(Metric.GPU_MEMORY_CLOCK_MHZ, Metric.GPU_MEMORY_TEMPERATURE_C, Metric.GPU_MEMORY_TOTAL_BYTES),
    *(Metric.GPU_ECC_CORRECTED, Metric.GPU_REMAPPED_ROWS_CORRECTED, Metric.GPU_REMAPPED_ROWS_UNCORRECTED),
    *(Metric.HOST_SWAP_IN_BYTES, Metric.HOST_PAGE_FAULTS, Metric.HOST_MAJOR_FAULTS, Metric.RANK_PAGE_FAULTS),
    *(Metric.HOST_DISK_READ_BYTES, Metric.HOST_DISK_WRITE_BYTES),
    *(Metric.RANK_CPU_NS, Metric.RANK_RESIDENT_BYTES, Metric.RANK_THREADS),
    *(Metric.RANK_VOLUNTARY_SWITCHES, Metric.RANK_INVOLUNTARY_SWITCHES),
    *(Metric.CLOCK_OFFSET_NS, Metric.CLOCK_ROUND_TRIP_NS),
}
"""For people and dashboards: no detector asks for them."""
METRICS = tuple(str(metric) for metric in Metric if metric not in UNREAD)
OFTEN = (str(Happening.BUSY_PROCESS), str(Happening.MEMORY_SHORT))
"""Events that a busy fleet is full of: only those of the window count."""
RARE = tuple(str(name) for name in Happening if str(name) not in OFTEN)


def load_fleet(
    reader: Reader,
    run_id: str,
    attempt: int,
    first_ns: int,
    last_ns: int,
    *,
    num_hosts: int = 1,
    up_to_now: bool = False,
) -> Fleet:
    """What the hosts of an attempt said from ``first_ns`` to ``last_ns`` (wall clock), and all their events.

    Where both are 0, the newest quarter of an hour. ``up_to_now``: and what they said since, while a job stands still.
    """
    seen_ns, moved_ns = _seen(reader, run_id, attempt)
    if not last_ns:
        first_ns, last_ns = seen_ns - SILENT_NS, seen_ns
    if up_to_now:
        last_ns = min(max(last_ns, seen_ns), last_ns + SILENT_NS)
    earliest_ns, latest_ns = max(0, first_ns - MARGIN_NS), min(LAST_NS, last_ns + MARGIN_NS)
    rare = reader.read(HostEvents(run_id=run_id, attempt=attempt, names=RARE))
    often = reader.read(
        HostEvents(run_id=run_id, attempt=attempt, names=OFTEN, first_ns=earliest_ns, last_ns=latest_ns)
    )
    samples = reader.read(
        HostSamples(
            run_id=run_id,
            attempt=attempt,
            metrics=METRICS,
            first_ns=earliest_ns,
            last_ns=latest_ns,
            period_ns=_period_ns(latest_ns - earliest_ns, num_hosts),
            parts=num_hosts <= MANY_HOSTS,
        )
    )
    return Fleet(series=series_by_metric(samples), events=_events(rare, often), seen_ns=seen_ns, moved_ns=moved_ns)


def _period_ns(length_ns: int, num_hosts: int) -> int:
    """A second, or as long as it takes to keep the number of periods down."""
    most = max(60, MAX_PERIODS * MANY_HOSTS // max(num_hosts, MANY_HOSTS))
    return max(1, -(-length_ns // (most * NS_PER_S))) * NS_PER_S


def _seen(reader: Reader, run_id: str, attempt: int) -> tuple[int, int]:
    """When agents last looked at ranks, and when any of these last recorded."""
    beats = reader.read(Heartbeats(run_id=run_id, attempt=attempt))
    if not beats.num_rows:
        return 0, 0
    return int(beats["at_ns"].to_numpy().max()), int(beats["beat_ns"].to_numpy().max())


def series_by_metric(table: pa.Table) -> dict[str, tuple[HostSeries, ...]]:
    """From an answer to ``HostSamples``. Its rows come ordered by metric, host, device, at_ns: a series is a stretch of
    equal names."""
    table = table.filter(pc.and_(pc.is_finite(table["value"]), pc.is_finite(table["mean"])))
    if not table.num_rows:
        return {}
    named = [table[name].combine_chunks().dictionary_encode() for name in ("metric", "host", "device")]
    codes = [column.indices.to_numpy() for column in named]
    words = [column.dictionary.to_pylist() for column in named]
    at_ns, value, mean = (table[name].to_numpy() for name in ("at_ns", "value", "mean"))
    changes = np.logical_or.reduce([column[1:] != column[:-1] for column in codes])
    bounds = [0, *(np.flatnonzero(changes) + 1).tolist(), table.num_rows]
    found: dict[str, list[HostSeries]] = {}
    for first, stop in pairwise(bounds):
        metric, host, device = (words[part][codes[part][first]] for part in range(3))
        rows = slice(first, stop)
        one = HostSeries(host=host, device=device, at_ns=at_ns[rows], value=value[rows], mean=mean[rows])
        found.setdefault(metric, []).append(one)
    return {metric: tuple(series) for metric, series in found.items()}


def _events(*tables: pa.Table) -> tuple[HostEvent, ...]:
    found = (HostEvent(**row) for table in tables for row in table.to_pylist())
    return tuple(sorted(found, key=lambda event: event.at_ns))
