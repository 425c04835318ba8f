"""Comparison of a rank with its peers: ranks that do the same work, over the same steps.

The method is robust statistics over ranks of the same pipeline stage, and persistence over steps. No rank is judged by
the wall time of a span that contains a collective.
"""

from dataclasses import dataclass

import numpy as np

from diagnose.model.operations import Floats, Ints

SMALL_GROUP = 16
"""In larger groups one rank hardly changes the median. So a rank is compared with the median that includes it."""
MAD_TO_SIGMA = 1.4826
"""Median absolute deviation to standard deviation, for a normal distribution."""
MEDIAN_EFFICIENCY = 1.2533
"""Standard error of a median divided by that of a mean, for a normal distribution."""
SAMPLED_COLUMNS = 1024
"""Number of columns whose noise represents that of all columns."""


def medians(values: Floats, axis: int) -> Floats:
    """Median of the known values along ``axis``. NaN if there are none.

    ``values``: any shape, NaN for unknown values. The result has the same shape without that axis.

    ``numpy.nanmedian`` uses masked arrays, or one row after another. It is many times slower for the shapes here.
    """
    ordered = np.sort(values, axis=axis)  # NaN comes last
    if not ordered.shape[axis]:
        return np.full(np.delete(ordered.shape, axis), np.nan)
    last = np.maximum(np.sum(~np.isnan(ordered), axis=axis, keepdims=True) - 1, 0)
    middle = np.concatenate([last // 2, (last + 1) // 2], axis=axis)
    return np.asarray(np.take_along_axis(ordered, middle, axis=axis).mean(axis=axis))


def lower_median(values: Floats) -> Floats:
    """Lower median over ranks, [steps]: one slow rank of two does not raise it. ``values``: [steps, ranks]."""
    return np.asarray(np.quantile(values, 0.5, axis=1, method="lower"), dtype=np.float64)


def peer_median(ns: Floats, group_of_rank: Ints) -> Floats:
    """For each step and rank, the median of its peers: the other ranks of the same group.

    Shapes [steps, ranks]. NaN if no peer has a value.
    """
    expected = np.full(ns.shape, np.nan)
    for group in np.unique(group_of_rank):
        members = np.flatnonzero(group_of_rank == group)
        if len(members) > SMALL_GROUP:
            expected[:, members] = medians(ns[:, members], axis=1)[:, None]
            continue
        others = np.array([members[members != rank] for rank in members])  # [members, members - 1]
        expected[:, members] = medians(ns[:, others], axis=2)
    return expected


def median_of_others(values: Floats) -> Floats:
    """Along the last axis, for each member the median of all others. The shape does not change.

    NaN if one member is NaN, or if there is one member only.
    """
    count = values.shape[-1]
    if count < 2:
        return np.full(values.shape, np.nan)
    ordered = np.sort(values, axis=-1)
    middle = count // 2
    if count % 2 == 0:
        low, high = ordered[..., middle - 1, None], ordered[..., middle, None]
        others = np.where(values <= low, high, low)
    else:
        low, mid, high = (ordered[..., middle + by, None] for by in (-1, 0, 1))
        others = np.where(values < mid, mid + high, np.where(values > mid, low + mid, low + high)) / 2
    return np.asarray(np.where(np.isnan(ordered[..., -1:]), np.nan, others))


def log_ratios(values: Floats, expected: Floats) -> Floats:
    """Logarithm of values over expected values. NaN if it is not finite."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found: Floats = np.log(values / expected)
    found[~np.isfinite(found)] = np.nan
    return found


def robust_sigma(values: Floats, floor: float) -> float:
    """Standard deviation from the median absolute deviation, at least ``floor``."""
    values = values[~np.isnan(values)]
    if not len(values):
        return floor
    return max(floor, MAD_TO_SIGMA * float(np.median(np.abs(values - np.median(values)))))


def step_noise(log_ratio: Floats, floor: float) -> float:
    """How much the log ratio of a rank varies from step to step, [steps, ranks].

    It is measured over all ranks. So a stretch of steps that is calm by chance does not reduce it.
    """
    known = log_ratio[:, ~np.isnan(log_ratio).all(axis=0)]
    return robust_sigma((known - np.nanmedian(known, axis=0)).ravel(), floor) if known.size else floor


def noise_between_steps(values: Floats, floor: float) -> float:
    """How much a column of ``values`` [steps, columns] varies from step to step, as a robust standard deviation.

    The result is computed from differences between neighbouring steps. So a lasting change of a column's level does not
    count as noise. This matters if there are few columns. Of very many columns, only a sample is used.
    """
    change = np.diff(values[:, :: max(1, values.shape[1] // SAMPLED_COLUMNS)], axis=0).ravel()
    return robust_sigma(change, floor * np.sqrt(2.0)) / float(np.sqrt(2.0))


def least_excess(z: float, noise: float, num_rows: int) -> float:
    """The median over ``num_rows`` rows that is ``z`` standard errors above zero."""
    return float(z * MEDIAN_EFFICIENCY * noise / np.sqrt(max(num_rows, 1)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Rows ``first`` to ``last`` (both included) in which a series stays high."""

    first: int
    last: int

    @property
    def length(self) -> int:
        return self.last - self.first + 1

    @property
    def rows(self) -> slice:
        return slice(self.first, self.last + 1)


def highest_stretch(series: Floats) -> Stretch:
    """The consecutive rows with the largest sum (Kadane). NaN counts as zero. ``series`` must not be empty."""
    best_sum, best = -np.inf, Stretch(first=0, last=0)
    current, first = 0.0, 0
    for row, value in enumerate(np.nan_to_num(series)):
        if current <= 0.0:
            current, first = 0.0, row
        current += float(value)
        if current > best_sum:
            best_sum, best = current, Stretch(first=first, last=row)
    return best


def highest_stretches(values: Floats) -> tuple[Ints, Ints]:
    """The first and the last row of :func:`highest_stretch`, for each column of ``values`` [rows, columns]."""
    best, current = np.full(values.shape[1], -np.inf), np.zeros(values.shape[1])
    begin, first, last = (np.zeros(values.shape[1], dtype=np.int64) for _ in range(3))
    for row, added in enumerate(np.nan_to_num(values)):
        restarts = current <= 0.0
        current = np.where(restarts, 0.0, current) + added
        begin[restarts] = row
        is_best = current > best
        best[is_best], first[is_best], last[is_best] = current[is_best], begin[is_best], row
    return first, last


@dataclass(frozen=True, slots=True, kw_only=True)
class Excess:
    """How much, how often and how significantly a series is above zero."""

    median: float
    share: float
    """Share of its rows above the given level."""
    z: float
    """Median divided by its standard error."""
    num_rows: int

    def persists(self, num_rows: int) -> bool:
        """Whether the series is high in at least ``num_rows`` rows. Each row that is not high needs two more high rows.

        So a share of two thirds or less is never enough. Otherwise the neighbours of a few very high rows would count
        as high.
        """
        num_high = round(self.share * self.num_rows)
        return num_high - 2 * (self.num_rows - num_high) >= num_rows


def measure_excess(series: Floats, *, above: float, noise: float) -> Excess:
    """How much, how often and how significantly ``series`` is above zero.

    Args:
        series: one value for each row (step). NaN values are left out.
        above: a row counts for ``Excess.share`` if its value is above this.
        noise: standard deviation of a row. It determines ``Excess.z``.
    """
    known = series[~np.isnan(series)]
    if not len(known):
        return Excess(median=0.0, share=0.0, z=0.0, num_rows=0)
    median = float(np.median(known))
    error = MEDIAN_EFFICIENCY * noise / np.sqrt(len(known))
    return Excess(median=median, share=float(np.mean(known > above)), z=median / error, num_rows=len(known))


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """The limits that a column must reach to be persistently high."""

    level: float
    share: float
    """Share of steps above half of the level."""
    z: float
    num_steps: int
    noise_floor: float


def persistent_excess(values: Floats, column: int, bar: Bar, noise: float) -> tuple[Stretch, Excess] | None:
    """The stretch in which a column of ``values`` [steps, columns] is high, or None if it does not pass the bar.

    The excess must also be significant compared with the noise of all columns within the stretch. In a noisy phase,
    some column is high by chance.
    """
    stretch = highest_stretch(values[:, column] - bar.level / 2)
    excess = measure_excess(values[stretch.rows, column], above=bar.level / 2, noise=noise)
    if not excess.persists(bar.num_steps) or excess.median < bar.level:
        return None
    if excess.share < bar.share or excess.z < bar.z:
        return None
    noise_within = noise_between_steps(values[stretch.rows], bar.noise_floor)
    return None if excess.median < least_excess(bar.z, noise_within, excess.num_rows) else (stretch, excess)
