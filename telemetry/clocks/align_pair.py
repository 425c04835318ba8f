"""One clock against another: from shared events to segments with one line each, and the bound of each line.

many ends of collectives     a line through them; its bound includes a difference that scatter may hide, and is limited
                             by the bounds from the order of events. If both disagree, only the order is used.
otherwise                    the order of events only

The order of events gives bounds from both sides:

    offset  ' '   '     '  '        upper bounds           every line between them is possible: the result is the
            ---------------------                          middle of all, and its bound reaches to the farthest
              .  .     . .   .      lower bounds

This is the linear programme of Duda et al. (ICDCS 1987) in two unknowns, solved by slope: for each slope the possible
levels are an interval, and its width is a concave function of the slope.
"""

from dataclasses import replace

import numpy as np

from telemetry.clocks.align_evidence import ENDS, MAX_BOUND_NS, ORDER, Bools, Floats, Piece, Sights
from telemetry.clocks.align_line import MIN_POINTS, Line, stretches

MAX_RELATIVE_DRIFT = 600e-6
"""Largest drift between two clocks: slewing by NTP plus the error of the quartz."""
_SLOPES = 33
_ZOOMS = 5


SURE = 4.0
"""Standard errors of the line in a bound: far fewer than one window in a thousand lies outside."""
HIDDEN = 1.5
"""Standard deviations of one event in a bound. A constant difference between the ends of two members can hide in the
scatter. If ends are late on one side only, the median is off by 1.35 standard deviations (uniform delay) or 0.97
(exponential delay)."""
ENDS_FLOOR_NS = 10_000.0
"""Ends of a collective can differ by this at least: the time of the last hop of the last chunk."""
STAMP_NS = 5_000.0
"""Error of a stamp: the reference of a device's clock, the anchor of a rank."""
MAX_STRAY = 0.02
"""Part of the order bounds that may contradict a line, because of wrong stamps."""
MAX_DRIFT = 1e-3


MAX_PIECES = 8


def pieces_of(sights: Sights, method: str = ORDER) -> list[Piece]:
    """Pieces in the order of the events; empty if nothing bounds the clock. ``method``: the method of pieces without
    ends of collectives."""
    ends = np.flatnonzero(~np.isnan(sights.ends_ns))
    found: list[Piece] = []
    if len(ends) >= MIN_POINTS:
        x = (sights.reading_ns - sights.reading_ns[0]).astype(np.float64)
        for stretch in stretches(x[ends], sights.ends_ns[ends])[:MAX_PIECES]:
            part = sights.between(int(ends[stretch.first]), int(ends[stretch.stop - 1]) + 1)
            found += _by_ends(part, stretch.line, int(sights.reading_ns[0])) or _in_order(part, method)
    found = found or _in_order(sights, method)
    return [piece for piece in found if piece.bound_ns <= MAX_BOUND_NS and abs(piece.drift) <= MAX_DRIFT]


def _by_ends(sights: Sights, line: Line, zero_ns: int) -> list[Piece]:
    """The piece of a line through ends of collectives, whose ``x`` counts from ``zero_ns``. Empty if the order of
    events contradicts the line."""
    first_ns, last_ns = int(sights.reading_ns.min()), int(sights.reading_ns.max())
    at_ns = (first_ns + last_ns) // 2
    x = (sights.reading_ns - at_ns).astype(np.float64)
    line = replace(line, centre=line.centre - (at_ns - zero_ns))
    half_ns = (last_ns - first_ns) / 2
    error_ns = max(line.error(-half_ns), line.error(half_ns))
    bound_ns = SURE * error_ns + HIDDEN * line.sigma + line.misfit + ENDS_FLOOR_NS
    expected = line.at(x)
    far_ns = np.maximum(sights.low_ns - expected, expected - sights.high_ns) - STAMP_NS
    stray = far_ns > bound_ns
    if stray.sum() > MAX_STRAY * len(sights):
        return []
    level = float(line.at(np.zeros(1))[0])
    least, most = _allowed(line, x, sights, ~stray, half_ns)
    least, most = max(level - bound_ns, least), min(level + bound_ns, most)
    if least > most:
        return []
    return [
        Piece(
            first_ns=first_ns,
            last_ns=last_ns,
            at_ns=at_ns,
            offset_ns=(least + most) / 2,
            drift=line.slope,
            bound_ns=(most - least) / 2,
            num_events=int((~np.isnan(sights.ends_ns)).sum()),
            method=ENDS,
        )
    ]


def _allowed(line: Line, x: Floats, sights: Sights, right: Bools, half_ns: float) -> tuple[float, float]:
    """The lowest and the highest level at ``x = 0`` that the order of events allows, for all slopes within the error of
    the line's slope."""
    room_ns = STAMP_NS + SURE * line.slope_error * 2 * half_ns
    least = (sights.low_ns - line.slope * x)[right].max(initial=-np.inf) - room_ns
    most = (sights.high_ns - line.slope * x)[right].min(initial=np.inf) + room_ns
    return float(least), float(most)


def _in_order(sights: Sights, method: str) -> list[Piece]:
    """Pieces from the order of events alone. Each piece has as many events as one line can fit."""
    found: list[Piece] = []
    first = 0
    while first < len(sights) and len(found) < MAX_PIECES:
        stop = _last_stop(sights, first)
        if (piece := _piece_between(sights.between(first, stop), method)) is not None:
            found.append(piece)
        first = stop
    return found


def _last_stop(sights: Sights, first: int) -> int:
    """The end (exclusive) of the longest part that begins at ``first`` and that one line can fit."""
    fits, stop = first + 1, len(sights)
    if not _contradicts(sights.between(first, stop)):
        return stop
    while stop - fits > 1:
        middle = (fits + stop) // 2
        fits, stop = (fits, middle) if _contradicts(sights.between(first, middle)) else (middle, stop)
    return fits


def _contradicts(sights: Sights) -> bool:
    two_sided = np.isfinite(sights.low_ns).any() and np.isfinite(sights.high_ns).any()
    return bool(two_sided) and _piece_between(sights, ORDER) is None


def _piece_between(sights: Sights, method: str) -> Piece | None:
    """The middle of all lines within the bounds of every event. None if no line fits, or one side is unbounded."""
    if not np.isfinite(sights.low_ns).any() or not np.isfinite(sights.high_ns).any():
        return None
    x = (sights.reading_ns - sights.reading_ns[0]).astype(np.float64)
    centre, half = float(x.min() + x.max()) / 2, float(np.ptp(x)) / 2
    bounds = _Bounds(x - centre, sights.low_ns - STAMP_NS, sights.high_ns + STAMP_NS)
    best = bounds.widest()
    if bounds.widths(np.array([best]))[0] < 0:
        return None
    steepest, flattest = (bounds.last_slope(best, drift) for drift in (MAX_RELATIVE_DRIFT, -MAX_RELATIVE_DRIFT))
    slopes = np.linspace(flattest, steepest, _SLOPES)
    (middle_first, room_first), (middle_last, room_last) = (bounds.range_at(slopes, at) for at in (-half, half))
    return Piece(
        first_ns=int(sights.reading_ns.min()),
        last_ns=int(sights.reading_ns.max()),
        at_ns=int(sights.reading_ns[0]) + round(centre),
        offset_ns=(middle_first + middle_last) / 2,
        drift=(middle_last - middle_first) / (2 * half) if half else 0.0,
        bound_ns=max(room_first, room_last),
        num_events=len(sights),
        method=method,
    )


class _Bounds:
    """The lower and upper bounds of a line at each ``x``. The middle of all ``x`` is zero."""

    def __init__(self, x: Floats, low: Floats, high: Floats) -> None:
        below, above = np.isfinite(low), np.isfinite(high)
        self._low_x, self._low = x[below], low[below]
        self._high_x, self._high = x[above], high[above]

    def lowest(self, slopes: Floats) -> Floats:
        """The lowest level at ``x = 0`` for each slope, at which the line is above all lower bounds."""
        return np.asarray((self._low - slopes[:, None] * self._low_x).max(axis=1))

    def highest(self, slopes: Floats) -> Floats:
        """The highest level at ``x = 0`` for each slope, at which the line is below all upper bounds."""
        return np.asarray((self._high - slopes[:, None] * self._high_x).min(axis=1))

    def widths(self, slopes: Floats) -> Floats:
        """Highest minus lowest level for each slope. Negative if no line with this slope is within all bounds."""
        return self.highest(slopes) - self.lowest(slopes)

    def widest(self) -> float:
        """The slope with the widest range of levels."""
        first, last = -MAX_RELATIVE_DRIFT, MAX_RELATIVE_DRIFT
        best = 0.0
        for _ in range(_ZOOMS):
            slopes = np.linspace(first, last, _SLOPES)
            best = float(slopes[int(np.argmax(self.widths(slopes)))])
            apart = (last - first) / (_SLOPES - 1)
            first, last = max(-MAX_RELATIVE_DRIFT, best - apart), min(MAX_RELATIVE_DRIFT, best + apart)
        return best

    def last_slope(self, inside: float, outside: float) -> float:
        """The slope farthest from ``inside``, in the direction of ``outside``, at which some line is within all bounds.

        Lines with the slope ``inside`` must be possible. The result is ``outside`` if lines with this slope are
        possible, too. Otherwise it is slightly too far, never too near.
        """
        for _ in range(_ZOOMS):
            slopes = np.linspace(inside, outside, _SLOPES)
            fits = np.flatnonzero(self.widths(slopes) >= 0)
            last = int(fits[-1]) if len(fits) else 0
            if last == _SLOPES - 1:
                return outside
            inside, outside = float(slopes[last]), float(slopes[last + 1])
        return outside

    def range_at(self, slopes: Floats, at: float) -> tuple[float, float]:
        """The middle, and half of the width, of the range of all possible lines at ``x = at``."""
        highest = float((self.highest(slopes) + slopes * at).max())
        lowest = float((self.lowest(slopes) + slopes * at).min())
        return (highest + lowest) / 2, (highest - lowest) / 2
