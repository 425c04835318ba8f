"""Host metrics on one time grid: a row for each host, a column for each period.

counters    how fast they grew; one that falls has begun anew, and a row is missing where one stood still
levels      as they were
a host's devices: their sum (network), the lowest (of its GPUs the one that holds up the others), the highest

``FEATURES`` lists the metrics compared and the least difference; the bounds are ours.
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
    """A difference below it is none, whatever the others do."""
    least_share: float = 0.2
    """The same as a share of what the others have."""


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
"""Those first that move first and move the most when a machine is sick."""


MAX_COLUMNS = 900
MIN_PERIOD_NS = 1_000_000_000
SAMPLED_SERIES = 16
"""Of each metric, whose rows tell how often there are any."""
OF_DEVICES: Mapping[str, Callable[[Floats], Floats]] = {
    "sum": lambda values: np.asarray(values.sum(axis=0)),
    "lowest": lambda values: np.asarray(values.min(axis=0)),
    "highest": lambda values: np.asarray(values.max(axis=0)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Common times, and when each host was heard of."""

    hosts: tuple[str, ...]
    first_ns: int
    period_ns: int
    num_columns: int
    seen_s: Mapping[str, tuple[float, float]]
    """Of each host the first and the last time it told anything, seconds after ``first_ns``."""

    @property
    def seconds(self) -> Floats:
        """After ``first_ns``: nanoseconds since 1970 are too long for a float."""
        return np.asarray(np.arange(self.num_columns) * (self.period_ns / 1e9), dtype=np.float64)

    def at_ns(self, column: int) -> int:
        return self.first_ns + column * self.period_ns


def grid_of(fleet: Fleet, hosts: Sequence[str], metrics: Iterable[str]) -> Grid | None:
    """The newest of the times in which these hosts told of these metrics; None where they told nothing."""
    many = [[one for one in fleet.of(metric) if len(one.at_ns)] for metric in metrics]
    seen: dict[str, tuple[int, int]] = {}
    for one in chain.from_iterable(many):
        first, last = seen.get(one.host, (int(one.at_ns[0]), int(one.at_ns[-1])))
        seen[one.host] = min(first, int(one.at_ns[0])), max(last, int(one.at_ns[-1]))
    seen = {host: seen[host] for host in hosts if host in seen}
    steps = [_spacing(series) for series in many if series]
    if not seen or not steps:
        return None
    period_ns = max(MIN_PERIOD_NS, min(steps))
    last_ns = max(last for _, last in seen.values())
    num_columns = min(MAX_COLUMNS, (last_ns - min(first for first, _ in seen.values())) // period_ns + 1)
    begin_ns = last_ns - (num_columns - 1) * period_ns
    return Grid(
        hosts=tuple(seen),
        first_ns=begin_ns,
        period_ns=period_ns,
        num_columns=num_columns,
        seen_s={host: ((first - begin_ns) / 1e9, (last - begin_ns) / 1e9) for host, (first, last) in seen.items()},
    )


def _spacing(series: Sequence[HostSeries]) -> int:
    """How far apart rows are, of a metric whose rows are not missing."""
    gaps = [float(np.median(np.diff(one.at_ns))) for one in series[:SAMPLED_SERIES] if len(one.at_ns) > 1]
    return int(np.median(gaps)) if gaps else 2**62


def on_grid(grid: Grid, series: Iterable[HostSeries], *, counter: bool, of_devices: str) -> Floats:
    """[hosts, columns]; NaN where a host told nothing: it has no such device, or was not heard of at that time."""
    devices: dict[str, list[Floats]] = {}
    for one in series:
        if one.host in grid.seen_s and len(one.at_ns):
            devices.setdefault(one.host, []).append(_resampled(grid, one, counter=counter))
    values = np.full((len(grid.hosts), grid.num_columns), np.nan)
    for row, host in enumerate(grid.hosts):
        if host in devices:
            values[row] = (
                devices[host][0] if len(devices[host]) == 1 else OF_DEVICES[of_devices](np.stack(devices[host]))
            )
    return values


def _resampled(grid: Grid, one: HostSeries, *, counter: bool) -> Floats:
    at_s = (one.at_ns - grid.first_ns).astype(np.float64) / 1e9
    seconds = grid.seconds
    if counter:
        values = np.diff(np.interp(seconds, at_s, total_growth(one)), prepend=np.nan) / (grid.period_ns / 1e9)
    else:
        values = np.interp(seconds, at_s, one.mean)
    first_s, last_s = grid.seen_s[one.host]
    margin_s = 2 * grid.period_ns / 1e9
    values[(seconds < max(first_s, at_s[0])) | (seconds > last_s + margin_s)] = np.nan
    return np.asarray(values)


def smoothed(values: Floats, width: int) -> Floats:
    """Mean of each value and those before it, [rows, columns - width + 1]; NaN where one of them is."""
    return _window_sums(values, width, 1) / width


def rms_over_windows(values: Floats, width: int, every: int = 1) -> Floats:
    """Of each row over windows of ``width`` columns, one beginning at each ``every``-th column, [rows, windows]; NaN
    where a value of the window is."""
    return np.asarray(np.sqrt(_window_sums(values**2, width, every) / width))


def _window_sums(values: Floats, width: int, every: int) -> Floats:
    """Added up window by window: differences of running sums would lose small values behind large ones."""
    last = values.shape[1] - width + 1
    return np.asarray(sum(values[:, column : column + last : every] for column in range(width)))
