"""What hosts measured, put on one grid of time: a row a host, a column a period.

counters    how fast they grew; one that falls has begun anew, and a row is missing where one stood still
levels      as they were
a host's devices: their sum (network), the lowest (of its GPUs the one that holds up the others), the highest
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from diagnose.model.counters import total_growth
from diagnose.model.fleet import Fleet, HostSeries
from diagnose.model.view import FloatMatrix, FloatVector

MAX_COLUMNS = 900
MIN_PERIOD_NS = 1_000_000_000
SAMPLED_SERIES = 16
"""Of each metric, whose rows tell how often there are any."""
OF_DEVICES: Mapping[str, Callable[[FloatMatrix], FloatVector]] = {
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
    def seconds(self) -> FloatVector:
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


def on_grid(grid: Grid, series: Iterable[HostSeries], *, counter: bool, of_devices: str) -> FloatMatrix:
    """[hosts, columns]; NaN where a host told nothing: it has no such device, or was not heard of at that time."""
    devices: dict[str, list[FloatVector]] = {}
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


def _resampled(grid: Grid, one: HostSeries, *, counter: bool) -> FloatVector:
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


def smoothed(values: FloatMatrix, width: int) -> FloatMatrix:
    """Mean of each value and those before it, [rows, columns - width + 1]; NaN where one of them is."""
    return _window_sums(values, width, 1) / width


def rms_over_windows(values: FloatMatrix, width: int, every: int = 1) -> FloatMatrix:
    """Of each row over windows of ``width`` columns, one beginning at each ``every``-th column, [rows, windows]; NaN
    where a value of the window is."""
    return np.asarray(np.sqrt(_window_sums(values**2, width, every) / width))


def _window_sums(values: FloatMatrix, width: int, every: int) -> FloatMatrix:
    """Added up window by window: differences of running sums would lose small values behind large ones."""
    last = values.shape[1] - width + 1
    return np.asarray(sum(values[:, column : column + last : every] for column in range(width)))
