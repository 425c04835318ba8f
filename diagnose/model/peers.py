"""Comparing a rank with its peers: those that do the same work, over the same steps.

Algorithm 7 of the field's list (peer outlier): robust statistics over ranks of equal pipeline stage, persistence
over steps. Nothing here ranks by wall time of a span that holds a collective.

Medians of what is partly unknown.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from diagnose.model.view import FloatMatrix, IntVector

Floats = npt.NDArray[np.float64]


def medians(values: Floats, axis: int) -> Floats:
    """Median of what is known along ``axis``; NaN where nothing is.

    ``values``: any shape, NaN where unknown. The result has the same shape without that axis.

    numpy's own (``nanmedian``) goes by masked arrays, or one row after another: many times slower for those here.
    """
    ordered = np.sort(values, axis=axis)  # NaN comes last
    if not ordered.shape[axis]:
        return np.full(np.delete(ordered.shape, axis), np.nan)
    last = np.maximum(np.sum(~np.isnan(ordered), axis=axis, keepdims=True) - 1, 0)
    middle = np.concatenate([last // 2, (last + 1) // 2], axis=axis)
    return np.asarray(np.take_along_axis(ordered, middle, axis=axis).mean(axis=axis))


SMALL_GROUP = 16
"""In larger groups one rank hardly moves the median, so it is not left out of its own."""
MAD_TO_SIGMA = 1.4826
"""Median absolute deviation to standard deviation, for a normal distribution."""
MEDIAN_EFFICIENCY = 1.2533
"""Standard error of a median over that of a mean, for a normal distribution."""

FloatVector = npt.NDArray[np.float64]


def peer_median(ns: FloatMatrix, group_of_rank: IntVector) -> FloatMatrix:
    """For each step and rank, the median of its peers: ranks of the same group, itself left out.

    Shapes [steps, ranks]; NaN where no peer has a value.
    """
    expected = np.full(ns.shape, np.nan)
    for group in np.unique(group_of_rank):
        members = np.flatnonzero(group_of_rank == group)
        if len(members) > SMALL_GROUP:
            expected[:, members] = medians(ns[:, members], axis=1)[:, None]
            continue
        for rank in members:
            expected[:, rank] = medians(ns[:, members[members != rank]], axis=1)
    return expected


def robust_sigma(values: FloatVector, floor: float) -> float:
    """Standard deviation by median absolute deviation, at least ``floor``."""
    values = values[~np.isnan(values)]
    if not len(values):
        return floor
    return max(floor, MAD_TO_SIGMA * float(np.median(np.abs(values - np.median(values)))))


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


def highest_stretch(series: FloatVector) -> Stretch:
    """The run of rows with the largest sum (Kadane); NaN counts as zero. ``series`` must not be empty."""
    best_sum, best = -np.inf, Stretch(first=0, last=0)
    current, first = 0.0, 0
    for row, value in enumerate(np.nan_to_num(series)):
        if current <= 0.0:
            current, first = 0.0, row
        current += float(value)
        if current > best_sum:
            best_sum, best = current, Stretch(first=first, last=row)
    return best


@dataclass(frozen=True, slots=True, kw_only=True)
class Excess:
    """By how much, how often and how surely a series lies above zero."""

    median: float
    share: float
    """Of its rows, those above the given level."""
    z: float
    """Median over its standard error."""
    num_rows: int

    def persists(self, num_rows: int) -> bool:
        """Whether it lies high for so long, or for longer where not in every row: each that does not takes two away
        that do, so that two thirds are never enough. Else those beside a few rows far too high would pass for more."""
        num_high = round(self.share * self.num_rows)
        return num_high - 2 * (self.num_rows - num_high) >= num_rows


def step_noise(log_ratio: FloatMatrix, floor: float) -> float:
    """How much a rank's log ratio moves from step to step: over all ranks, so that no lucky stretch looks calm.

    Shape [steps, ranks]; ranks without values are left out.
    """
    known = log_ratio[:, ~np.isnan(log_ratio).all(axis=0)]
    return robust_sigma((known - np.nanmedian(known, axis=0)).ravel(), floor) if known.size else floor


def measure_excess(series: FloatVector, *, above: float, noise: float) -> Excess:
    """Excess of a series of log ratios whose rows scatter by ``noise``; rows of NaN are left out."""
    known = series[~np.isnan(series)]
    if not len(known):
        return Excess(median=0.0, share=0.0, z=0.0, num_rows=0)
    median = float(np.median(known))
    error = MEDIAN_EFFICIENCY * noise / np.sqrt(len(known))
    return Excess(median=median, share=float(np.mean(known > above)), z=median / error, num_rows=len(known))
