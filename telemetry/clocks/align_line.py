"""A robust line through points with many outliers, or several lines one after another if one does not fit.

    y   . .  .        .          a clock that jumps or begins to be slewed bends the points: they are split there.
         . ' .  .               A few outliers at an end may be the beginning of such a change: they are left out.
                  . ' . .       What a line does not explain within its segment is its *misfit*.

Slope by the median of slopes (Theil 1950, on pairs a third of the rows apart), then least squares with Tukey's biweight
(Huber, Robust Statistics, 1981).
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

MIN_POINTS = 8
"""Fewer carry no line: their scatter is not known."""
MAX_DEPTH = 4
"""Of cuts within cuts."""
TO_SIGMA = 1.4826
"""From the median of absolute deviations of a normal distribution."""
MEDIAN_EFFICIENCY = 1.2533
"""Standard error of a median over that of a mean."""
USUAL_SLOPE = 100e-6
"""By so much two clocks usually run apart, at most."""
_ROUNDS = 5
_FAR = 6.0
"""Standard deviations beyond which a point says nothing of the line."""
_BENT = 6.0
"""Standard errors by which the median of a block lies off a line that does not do."""
_WORTH = 0.7
"""Two lines must bring the deviations down to this part."""
_BLOCKS = 8
_CANDIDATES = 24
_LEAST_SIGMA = 1.0
_FEW = 12
"""So many points tell their scatter to within its double; it is taken for as much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """``level + slope * (x - centre)``."""

    centre: float
    level: float
    slope: float
    sigma: float
    """Robust standard deviation of a point, made larger where few points tell it."""
    weight: float
    """How many points count."""
    slope_error: float
    """Standard error of the slope."""
    misfit: float
    """By how much the medians of blocks lie off, beyond what scatter explains."""

    def at(self, x: Floats) -> Floats:
        return self.level + self.slope * (x - self.centre)

    def error(self, x: float) -> float:
        """Standard error at ``x``."""
        return float(np.hypot(self.sigma / np.sqrt(self.weight), self.slope_error * (x - self.centre)))


def fit(x: Floats, y: Floats) -> Line:
    """The line through some points; ``x`` ascends, but for where a clock was set back.

    Where the points lie so close together that they tell less of the slope than :data:`USUAL_SLOPE` does, it is level.
    """
    found = _fit(x, y, turns=True)
    found = found if found.slope_error < USUAL_SLOPE else _fit(x, y, turns=False)
    return _with_misfit(found, x, y)


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
    """Rows on which one line holds."""

    first: int
    stop: int
    """One past the last."""
    line: Line


def stretches(x: Floats, y: Floats) -> list[Stretch]:
    """In order; rows between them say nothing."""
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


def _with_misfit(line: Line, x: Floats, y: Floats) -> Line:
    medians, size = _block_medians(y - line.at(x))
    by_chance = 3.5 * MEDIAN_EFFICIENCY * line.sigma / np.sqrt(size)
    misfit = max(0.0, float(np.abs(medians).max()) - by_chance)
    return replace(line, misfit=misfit)


def _block_medians(off: Floats) -> tuple[Floats, int]:
    blocks = np.array_split(off, max(1, min(_BLOCKS, len(off) // MIN_POINTS)))
    return np.array([np.median(block) for block in blocks]), len(blocks[-1])


def _noise(x: Floats, y: Floats) -> float:
    """Standard deviation of a point by its neighbours alone: bends and jumps do not count."""
    run = x[2:] - x[:-2]
    part = np.where(run > 0, (x[1:-1] - x[:-2]) / np.where(run > 0, run, 1.0), 0.5)
    part = np.clip(part, 0.0, 1.0)
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
    """Where two lines leave least, and how much: roughly first, then exactly."""
    low, high = MIN_POINTS, len(x) - MIN_POINTS
    roughly = np.unique(np.linspace(low, high, _CANDIDATES).astype(np.int64)).tolist()
    cost, at = min((_cost_of_cut(x, y, at, noise), at) for at in roughly)
    apart = (high - low) // _CANDIDATES + 1
    nearby = range(max(low, at - apart), min(high, at + apart) + 1)
    cost, at = min((_cost_of_cut(x, y, at, noise), at) for at in nearby)
    return at, cost


def _cost_of_cut(x: Floats, y: Floats, at: int, noise: float) -> float:
    return _cost(x[:at], y[:at], noise) + _cost(x[at:], y[at:], noise)


def _cost(x: Floats, y: Floats, noise: float) -> float:
    """Absolute deviations, those of far points counted as far and no more."""
    return float(np.minimum(np.abs(y - fit(x, y).at(x)), _FAR * noise).sum())


def _trimmed(x: Floats, y: Floats, whole: Stretch) -> list[Stretch]:
    """The stretch without the far points at its ends; such an end may be a stretch of its own."""
    first, stop, line = whole.first, whole.stop, whole.line
    near = np.flatnonzero(np.abs(y[first:stop] - line.at(x[first:stop])) <= _FAR * line.sigma)
    if not len(near):
        return []
    begin, end = first + int(near[0]), first + int(near[-1]) + 1
    if (begin, end) == (first, stop):
        return [whole]
    parts = [(first, begin), (begin, end), (end, stop)]
    return [_stretch(x, y, *part) for part in parts if part[1] - part[0] >= MIN_POINTS]
