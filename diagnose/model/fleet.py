"""Samples and events of the hosts of a job.

    fleet.series[Metric.NIC_UP]   one HostSeries for each host and device that has the metric
    fleet.events                  link-down, gpu-xid ... of all hosts, in order of time

Times are the wall clock of each host, like the spans of its ranks. They are compared within one host, or with a margin
for the clock difference.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnose.model.operations import Floats, Ints
from telemetry.host_metrics import Happening, Metric
from telemetry.stores.interface import Reader
from telemetry.stores.queries import Heartbeats
from telemetry.stores.queries.hosts import LAST_NS, HostEvents, HostSamples


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSeries:
    """One metric of one device of one host. The arrays have the same length. ``at_ns`` is ascending."""

    host: str
    device: str
    at_ns: Ints
    value: Floats
    """Last value of each period: for counters."""
    mean: Floats
    """Mean value over each period: for levels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostEvent:
    """An event on a host: see ``telemetry.host_metrics.Happening``."""

    host: str
    device: str
    at_ns: int
    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """All hosts of one attempt, in the time of a view and shortly before."""

    series: Mapping[str, tuple[HostSeries, ...]] = field(default_factory=dict)
    events: tuple[HostEvent, ...] = ()
    seen_ns: int = 0
    """Wall clock of the newest report of any agent. 0 if there is none."""
    moved_ns: int = 0
    """Wall clock of the newest record of any rank, according to the agents. 0 if there is none."""

    @property
    def still_s(self) -> float:
        """Seconds since the newest record of any rank."""
        return max(0, self.seen_ns - self.moved_ns) / 1e9 if self.moved_ns else 0.0

    def of(self, metric: str) -> tuple[HostSeries, ...]:
        return self.series.get(metric, ())

    def named(self, *names: str) -> list[HostEvent]:
        return [event for event in self.events if event.name in names]


NO_FLEET = Fleet()
NS_PER_S = 1_000_000_000
MARGIN_NS = 60 * NS_PER_S
"""Time before the first step, to know the values of counters at its begin; and after the last step."""
SILENT_NS = 15 * 60 * NS_PER_S
"""Time range if no step is finished."""
MAX_PERIODS = 900
"""Largest number of periods of a series. A longer time range has longer periods."""
MANY_HOSTS = 64
"""With more hosts, cores and disks are left out and periods are longer."""
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
"""Metrics that only the dashboard uses. They are not loaded."""
METRICS = tuple(str(metric) for metric in Metric if metric not in UNREAD)
OFTEN = (str(Happening.BUSY_PROCESS), str(Happening.MEMORY_SHORT))
"""Frequent events: only those in the window are loaded."""
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
    """Samples of the hosts from ``first_ns`` to ``last_ns`` (wall clock), and their events.

    If ``last_ns`` is 0, the time range is the newest quarter of an hour. ``up_to_now``: extend it by up to a quarter of
    an hour after ``last_ns``, for a stalled job.
    """
    beats = reader.read(Heartbeats(run_id=run_id, attempt=attempt))
    seen_ns, moved_ns = (max(beats[name].to_pylist(), default=0) for name in ("at_ns", "beat_ns"))
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
    """One second, or longer to limit the number of periods."""
    most = max(60, MAX_PERIODS * MANY_HOSTS // max(num_hosts, MANY_HOSTS))
    return max(1, -(-length_ns // (most * NS_PER_S))) * NS_PER_S


def series_by_metric(table: pa.Table) -> dict[str, tuple[HostSeries, ...]]:
    """Series of an answer to ``HostSamples``. Its rows are ordered by metric, host, device and time."""
    table = table.filter(pc.and_(pc.is_finite(table["value"]), pc.is_finite(table["mean"])))
    if not table.num_rows:
        return {}
    named = [table[name].combine_chunks().dictionary_encode() for name in ("metric", "host", "device")]
    codes = [column.indices.to_numpy() for column in named]
    names = [column.dictionary.to_pylist() for column in named]
    at_ns, value, mean = (table[name].to_numpy() for name in ("at_ns", "value", "mean"))
    changes = np.logical_or.reduce([column[1:] != column[:-1] for column in codes])
    bounds = [0, *(np.flatnonzero(changes) + 1).tolist(), table.num_rows]
    found: dict[str, list[HostSeries]] = {}
    for first, stop in pairwise(bounds):
        metric, host, device = (names[part][codes[part][first]] for part in range(3))
        rows = slice(first, stop)
        series = HostSeries(host=host, device=device, at_ns=at_ns[rows], value=value[rows], mean=mean[rows])
        found.setdefault(metric, []).append(series)
    return {metric: tuple(every) for metric, every in found.items()}


def _events(*tables: pa.Table) -> tuple[HostEvent, ...]:
    found = (HostEvent(**row) for table in tables for row in table.to_pylist())
    return tuple(sorted(found, key=lambda event: event.at_ns))
