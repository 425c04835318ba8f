"""Lines between bounds from both sides: what the order of events says about a clock.

    offset  ' '   '     '  '        upper bounds           every line between them is possible: the result is the
            ---------------------                          middle of all, and its bound reaches to the farthest
              .  .     . .   .      lower bounds

The linear programme of Duda et al. (ICDCS 1987) in two unknowns, solved by slope: for each slope the possible levels
are an interval, and its width is a concave function of the slope.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

MAX_DRIFT = 600e-6
"""Between two clocks: what NTP may slew one, and what quartz is off."""
_SLOPES = 33
_ZOOMS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Corridor:
    """``level + slope * (x - centre)``, give or take ``bound`` from the first point to the last."""

    centre: float
    level: float
    slope: float
    bound: float


def corridor(x: Floats, low: Floats, high: Floats) -> Corridor | None:
    """All lines with ``low <= line <= high`` at every point; None where there is none, or no end to them."""
    if not len(x) or not np.isfinite(low).any() or not np.isfinite(high).any():
        return None
    centre = float(x.min() + x.max()) / 2
    bounds = _Bounds(x - centre, low, high)
    best = bounds.widest()
    if bounds.widths(np.array([best]))[0] < 0:
        return None
    slopes = np.linspace(bounds.last_slope(best, -MAX_DRIFT), bounds.last_slope(best, MAX_DRIFT), _SLOPES)
    half = float(x.max() - x.min()) / 2
    (middle_first, room_first), (middle_last, room_last) = (bounds.range_at(slopes, at) for at in (-half, half))
    return Corridor(
        centre=centre,
        level=(middle_first + middle_last) / 2,
        slope=(middle_last - middle_first) / (2 * half) if half else 0.0,
        bound=max(room_first, room_last),
    )


class _Bounds:
    """Points with what a line may be there, ``x`` around zero."""

    def __init__(self, x: Floats, low: Floats, high: Floats) -> None:
        below, above = np.isfinite(low), np.isfinite(high)
        self._low_x, self._low = x[below], low[below]
        self._high_x, self._high = x[above], high[above]

    def lowest(self, slopes: Floats) -> Floats:
        """Level that a line of each slope has at least."""
        return np.asarray((self._low - slopes[:, None] * self._low_x).max(axis=1))

    def highest(self, slopes: Floats) -> Floats:
        return np.asarray((self._high - slopes[:, None] * self._high_x).min(axis=1))

    def widths(self, slopes: Floats) -> Floats:
        """How far apart the levels are that fit; below zero: none does."""
        return self.highest(slopes) - self.lowest(slopes)

    def widest(self) -> float:
        """The slope with the most room."""
        first, last = -MAX_DRIFT, MAX_DRIFT
        best = 0.0
        for _ in range(_ZOOMS):
            slopes = np.linspace(first, last, _SLOPES)
            best = float(slopes[int(np.argmax(self.widths(slopes)))])
            apart = (last - first) / (_SLOPES - 1)
            first, last = max(-MAX_DRIFT, best - apart), min(MAX_DRIFT, best + apart)
        return best

    def last_slope(self, inside: float, outside: float) -> float:
        """From a slope that fits towards one that may not: the last that fits."""
        for _ in range(_ZOOMS):
            slopes = np.linspace(inside, outside, _SLOPES)
            fits = np.flatnonzero(self.widths(slopes) >= 0)
            last = int(fits[-1]) if len(fits) else 0
            if last == _SLOPES - 1:
                return outside
            inside, outside = float(slopes[last]), float(slopes[last + 1])
        return outside  # a little too far rather than too short

    def range_at(self, slopes: Floats, at: float) -> tuple[float, float]:
        """Of all lines that fit, the middle and half of the range at ``at``."""
        highest = float((self.highest(slopes) + slopes * at).max())
        lowest = float((self.lowest(slopes) + slopes * at).min())
        return (highest + lowest) / 2, (highest - lowest) / 2
