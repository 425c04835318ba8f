"""Host metrics on one time grid: a row for each host, a column for each period.

    counters   growth per second. A counter that falls has restarted. An unchanged counter has no row
    levels     mean values
    devices    of a host: their sum (network), the lowest (the GPU that delays the others), or the highest

``FEATURES`` lists the compared metrics and the least difference. The bounds are our own.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from diagnose.model.fleet import Fleet, HostSeries
from diagnose.model.gpus import total_growth
from diagnose.model.operations import Floats
from telemetry.host_metrics import Metric


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """One metric of hosts."""

    metric: Metric
    unit: str
    counter: bool = False
    of_devices: str = "sum"
    least: float
    """A smaller difference is ignored."""
    least_share: float = 0.2
    """A difference below this share of the others' value is ignored, too."""


FEATURES = (
    Feature(metric=Metric.NIC_SEND_BYTES, unit="bytes/s", counter=True, least=1e6),
    Feature(metric=Metric.NIC_RECEIVE_BYTES, unit="bytes/s", counter=True, least=1e6),
    Feature(metric=Metric.HOST_CPU_BUSY, unit="of all cores", least=0.1),
    Feature(metric=Metric.GPU_UTILIZATION, unit="(lowest of its GPUs)", of_devices="lowest", least=0.1),
    Feature(metric=Metric.GPU_POWER_W, unit="W (lowest of its GPUs)", of_devices="lowest", least=30.0),
    Feature(
        metric=Metric.GPU_SM_CLOCK_MHZ,
        unit="MHz (lowest of its GPUs)",
        of_devices="lowest",
        least=50.0,
        least_share=0.05,
    ),
    Feature(metric=Metric.TCP_RETRANSMITS, unit="segments/s", counter=True, least=20.0),
    Feature(metric=Metric.NIC_ERRORS, unit="errors/s", counter=True, least=5.0),
    Feature(metric=Metric.NIC_DROPS, unit="drops/s", counter=True, least=50.0),
    Feature(metric=Metric.GPU_NVLINK_ERRORS, unit="errors/s", counter=True, least=5.0),
    Feature(metric=Metric.GPU_PCIE_REPLAYS, unit="replays/s", counter=True, least=1.0),
    Feature(metric=Metric.HOST_PRESSURE_MEMORY_NS, unit="ns/s", counter=True, least=5e7),
    Feature(metric=Metric.HOST_PRESSURE_IO_NS, unit="ns/s", counter=True, least=1e8),
    Feature(metric=Metric.HOST_PRESSURE_CPU_NS, unit="ns/s", counter=True, least=1e8),
    Feature(metric=Metric.HOST_RUN_QUEUE, unit="threads", least=4.0),
    Feature(metric=Metric.HOST_CPU_STEAL, unit="of all cores", least=0.05),
    Feature(metric=Metric.HOST_SWAP_OUT_BYTES, unit="bytes/s", counter=True, least=1e6),
    Feature(metric=Metric.HOST_DISK_BUSY_NS, unit="ns/s", counter=True, of_devices="highest", least=2e8),
    Feature(metric=Metric.GPU_MEMORY_USED_BYTES, unit="bytes (lowest of its GPUs)", of_devices="lowest", least=2e9),
    Feature(metric=Metric.HOST_MEMORY_AVAILABLE_BYTES, unit="bytes", least=8e9),
)
"""The most sensitive metrics first."""
MAX_COLUMNS = 900
MIN_PERIOD_NS = 1_000_000_000
SAMPLED_SERIES = 16
"""Number of series of a metric that determine its period."""
OF_DEVICES: Mapping[str, Callable[[Floats], Floats]] = {
    "sum": lambda values: np.asarray(values.sum(axis=0)),
    "lowest": lambda values: np.asarray(values.min(axis=0)),
    "highest": lambda values: np.asarray(values.max(axis=0)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Common times, and the time range of the samples of each host."""

    hosts: tuple[str, ...]
    first_ns: int
    period_ns: int
    num_columns: int
    seen_s: Mapping[str, tuple[float, float]]
    """First and last sample of each host, seconds after ``first_ns``."""

    @property
    def seconds(self) -> Floats:
        """Seconds after ``first_ns``: nanoseconds since 1970 are too long for a float."""
        return np.asarray(np.arange(self.num_columns) * (self.period_ns / 1e9), dtype=np.float64)

    def at_ns(self, column: int) -> int:
        return self.first_ns + column * self.period_ns


def grid_of(fleet: Fleet, hosts: Sequence[str], metrics: Iterable[str]) -> Grid | None:
    """The grid of the newest times with samples of these hosts and metrics, or None without samples."""
    by_metric = [[series for series in fleet.of(metric) if len(series.at_ns)] for metric in metrics]
    ranges: dict[str, tuple[int, int]] = {}
    for series in chain.from_iterable(by_metric):
        first, last = ranges.get(series.host, (int(series.at_ns[0]), int(series.at_ns[-1])))
        ranges[series.host] = min(first, int(series.at_ns[0])), max(last, int(series.at_ns[-1]))
    ranges = {host: ranges[host] for host in hosts if host in ranges}
    periods = [_spacing(each) for each in by_metric if each]
    if not ranges or not periods:
        return None
    period_ns = max(MIN_PERIOD_NS, min(periods))
    last_ns = max(last for _, last in ranges.values())
    num_columns = min(MAX_COLUMNS, (last_ns - min(first for first, _ in ranges.values())) // period_ns + 1)
    begin_ns = last_ns - (num_columns - 1) * period_ns
    return Grid(
        hosts=tuple(ranges),
        first_ns=begin_ns,
        period_ns=period_ns,
        num_columns=num_columns,
        seen_s={host: ((first - begin_ns) / 1e9, (last - begin_ns) / 1e9) for host, (first, last) in ranges.items()},
    )


def _spacing(series: Sequence[HostSeries]) -> int:
    """Usual time between two rows of a metric."""
    gaps = [float(np.median(np.diff(each.at_ns))) for each in series[:SAMPLED_SERIES] if len(each.at_ns) > 1]
    return int(np.median(gaps)) if gaps else 2**62


def on_grid(grid: Grid, series: Iterable[HostSeries], *, counter: bool, of_devices: str) -> Floats:
    """Values, [hosts, columns]. NaN if a host has no such device, or no samples at that time."""
    devices: dict[str, list[Floats]] = {}
    for each in series:
        if each.host in grid.seen_s and len(each.at_ns):
            devices.setdefault(each.host, []).append(_resampled(grid, each, counter=counter))
    values = np.full((len(grid.hosts), grid.num_columns), np.nan)
    for row, host in enumerate(grid.hosts):
        if host in devices:
            values[row] = (
                devices[host][0] if len(devices[host]) == 1 else OF_DEVICES[of_devices](np.stack(devices[host]))
            )
    return values


def _resampled(grid: Grid, series: HostSeries, *, counter: bool) -> Floats:
    at_s = (series.at_ns - grid.first_ns).astype(np.float64) / 1e9
    seconds = grid.seconds
    if counter:
        values = np.diff(np.interp(seconds, at_s, total_growth(series)), prepend=np.nan) / (grid.period_ns / 1e9)
    else:
        values = np.interp(seconds, at_s, series.mean)
    first_s, last_s = grid.seen_s[series.host]
    margin_s = 2 * grid.period_ns / 1e9
    values[(seconds < max(first_s, at_s[0])) | (seconds > last_s + margin_s)] = np.nan
    return np.asarray(values)


def smoothed(values: Floats, width: int) -> Floats:
    """Moving mean, [rows, columns - width + 1]. NaN if one of its values is NaN."""
    return _window_sums(values, width, 1) / width


def rms_over_windows(values: Floats, width: int, every: int = 1) -> Floats:
    """Root mean square over windows of ``width`` columns that begin at each ``every``-th column, [rows, windows].

    NaN if a value of the window is NaN.
    """
    return np.asarray(np.sqrt(_window_sums(values**2, width, every) / width))


def _window_sums(values: Floats, width: int, every: int) -> Floats:
    """Sums over windows. Differences of running sums would lose small values beside large ones."""
    last = values.shape[1] - width + 1
    return np.asarray(sum(values[:, column : column + last : every] for column in range(width)))
