"""A robust line through points with many outliers, or several lines one after another if one does not fit.

    y   . .  .        .          If a clock jumps, or NTP begins to slew it, the points are split there.
         . ' .  .               A few outliers at an end can be the beginning of such a change: they are left out.
                  . ' . .       The deviation that scatter does not explain is the *misfit* of a line.

Slope by the median of slopes (Theil 1950, on pairs a third of the rows apart), then least squares with Tukey's biweight
(Huber, Robust Statistics, 1981).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from telemetry.clocks.align_evidence import Floats

MIN_POINTS = 8
"""With fewer points, the scatter is unknown."""
MAX_DEPTH = 4
"""Largest depth of recursive cuts."""
TO_SIGMA = 1.4826
"""Ratio of the standard deviation to the median absolute deviation, for a normal distribution."""
MEDIAN_EFFICIENCY = 1.2533
"""Ratio of the standard error of a median to that of a mean."""
USUAL_SLOPE = 100e-6
"""Usual largest drift between two clocks."""
_ROUNDS = 5
_FAR = 6.0
"""Standard deviations beyond which a point has no weight."""
_BENT = 6.0
"""A line does not fit if it is more than this number of standard errors away from the median of a block."""
_WORTH = 0.7
"""Two lines replace one line only if they reduce the deviations to this part or less."""
_BLOCKS = 8
_CANDIDATES = 24
_LEAST_SIGMA = 1.0
_FEW = 12
"""Up to this number of points, the estimated scatter is doubled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """``level + slope * (x - centre)``."""

    centre: float
    level: float
    slope: float
    sigma: float
    """Robust standard deviation of a point, larger for few points."""
    weight: float
    """Sum of the weights of the points."""
    slope_error: float
    """Standard error of the slope."""
    misfit: float
    """Largest deviation of the median of a block, beyond what scatter explains."""

    def at(self, x: Floats) -> Floats:
        return self.level + self.slope * (x - self.centre)

    def error(self, x: float) -> float:
        """Standard error at ``x``."""
        return float(np.hypot(self.sigma / np.sqrt(self.weight), self.slope_error * (x - self.centre)))


def fit(x: Floats, y: Floats) -> Line:
    """The line through points. ``x`` ascends, except where a clock was set back.

    The line is level if the points are too close together to determine the slope better than :data:`USUAL_SLOPE`.
    """
    line = _fit(x, y, turns=True)
    line = line if line.slope_error < USUAL_SLOPE else _fit(x, y, turns=False)
    medians, size = _block_medians(y - line.at(x))
    by_chance = 3.5 * MEDIAN_EFFICIENCY * line.sigma / np.sqrt(size)
    return replace(line, misfit=max(0.0, float(np.abs(medians).max()) - by_chance))


def _fit(x: Floats, y: Floats, *, turns: bool) -> Line:
    slope = _middle_slope(x, y) if turns else 0.0
    level = float(np.median(y - slope * x))
    weight = np.ones(len(x))
    sigma = _LEAST_SIGMA
    for _ in range(_ROUNDS):
        off = y - level - slope * x
        sigma = max(TO_SIGMA * float(np.median(np.abs(off))), _LEAST_SIGMA)
        weight = np.clip(1 - (off / (_FAR * sigma)) ** 2, 0, None) ** 2
        level, slope = _weighted(x, y, weight) if turns else (float((weight * y).sum() / weight.sum()), 0.0)
    total = float(weight.sum())
    centre = float((weight * x).sum() / total)
    spread = float((weight * (x - centre) ** 2).sum())
    sigma *= 1 + (_FEW / len(x)) ** 2
    return Line(
        centre=centre,
        level=level + slope * centre,
        slope=slope,
        sigma=sigma,
        weight=total,
        slope_error=sigma / np.sqrt(spread) if turns and spread > 0 else USUAL_SLOPE,
        misfit=0.0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Rows that one line fits."""

    first: int
    stop: int
    """One past the last."""
    line: Line


def stretches(x: Floats, y: Floats) -> list[Stretch]:
    """The stretches, in order. Rows between stretches are not used."""
    return [part for whole in _cut(x, y, 0, len(x), 0) for part in _trimmed(x, y, whole)]


def _middle_slope(x: Floats, y: Floats) -> float:
    apart = max(1, len(x) // 3)
    run, rise = x[apart:] - x[:-apart], y[apart:] - y[:-apart]
    usable = run > 0
    return float(np.median(rise[usable] / run[usable])) if usable.any() else 0.0


def _weighted(x: Floats, y: Floats, weight: Floats) -> tuple[float, float]:
    """Level at zero, and slope, by weighted least squares."""
    total = weight.sum()
    x0, y0 = (weight * x).sum() / total, (weight * y).sum() / total
    spread = (weight * (x - x0) ** 2).sum()
    slope = float((weight * (x - x0) * (y - y0)).sum() / spread) if spread > 0 else 0.0
    return float(y0 - slope * x0), slope


def _block_medians(off: Floats) -> tuple[Floats, int]:
    blocks = np.array_split(off, max(1, min(_BLOCKS, len(off) // MIN_POINTS)))
    return np.array([np.median(block) for block in blocks]), len(blocks[-1])


def _noise(x: Floats, y: Floats) -> float:
    """Standard deviation of a point, estimated from its two neighbours, so that bends and jumps have no effect."""
    run = x[2:] - x[:-2]
    part = np.clip(np.where(run > 0, (x[1:-1] - x[:-2]) / np.where(run > 0, run, 1.0), 0.5), 0.0, 1.0)
    off = y[1:-1] - (y[:-2] * (1 - part) + y[2:] * part)
    sigma = TO_SIGMA * float(np.median(np.abs(off / np.sqrt(1 + part**2 + (1 - part) ** 2))))
    return max(sigma, _LEAST_SIGMA)


def _stretch(x: Floats, y: Floats, first: int, stop: int) -> Stretch:
    return Stretch(first=first, stop=stop, line=fit(x[first:stop], y[first:stop]))


def _cut(x: Floats, y: Floats, first: int, stop: int, depth: int) -> list[Stretch]:
    whole = _stretch(x, y, first, stop)
    if stop - first < 2 * MIN_POINTS or depth == MAX_DEPTH:
        return [whole]
    inside, of = x[first:stop], y[first:stop]
    noise = _noise(inside, of)
    medians, size = _block_medians(of - whole.line.at(inside))
    if np.abs(medians).max() <= _BENT * MEDIAN_EFFICIENCY * noise / np.sqrt(size):
        return [whole]
    at, cost = _best_cut(inside, of, noise)
    if cost > _WORTH * _cost(inside, of, noise):
        return [whole]
    return _cut(x, y, first, first + at, depth + 1) + _cut(x, y, first + at, stop, depth + 1)


def _best_cut(x: Floats, y: Floats, noise: float) -> tuple[int, float]:
    """The row at which two lines fit best, and their cost: first a coarse search, then a fine one."""

    def best_of(rows: Iterable[int]) -> tuple[float, int]:
        return min((_cost(x[:row], y[:row], noise) + _cost(x[row:], y[row:], noise), row) for row in rows)

    low, high = MIN_POINTS, len(x) - MIN_POINTS
    _, near = best_of(np.unique(np.linspace(low, high, _CANDIDATES).astype(np.int64)).tolist())
    apart = (high - low) // _CANDIDATES + 1
    cost, at = best_of(range(max(low, near - apart), min(high, near + apart) + 1))
    return at, cost


def _cost(x: Floats, y: Floats, noise: float) -> float:
    """Sum of absolute deviations, each limited to ``_FAR`` standard deviations."""
    return float(np.minimum(np.abs(y - fit(x, y).at(x)), _FAR * noise).sum())


def _trimmed(x: Floats, y: Floats, whole: Stretch) -> list[Stretch]:
    """The stretch without the outliers at its ends. Such an end can be a stretch of its own."""
    first, stop, line = whole.first, whole.stop, whole.line
    near = np.flatnonzero(np.abs(y[first:stop] - line.at(x[first:stop])) <= _FAR * line.sigma)
    if not len(near):
        return []
    begin, end = first + int(near[0]), first + int(near[-1]) + 1
    if (begin, end) == (first, stop):
        return [whole]
    parts = [(first, begin), (begin, end), (end, stop)]
    return [_stretch(x, y, *part) for part in parts if part[1] - part[0] >= MIN_POINTS]
