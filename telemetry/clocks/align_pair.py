"""One clock against another: from shared events to segments with one line each, and the bound of each line.

many ends of collectives     a line through them; its bound includes what their scatter may hide, and is cut by the
                             bounds from the order of events. If both disagree, only the order counts.
otherwise                    the order of events only
"""

from dataclasses import replace

import numpy as np

from telemetry.clocks.align_evidence import ENDS, ORDER, Floats, Piece, Sights
from telemetry.clocks.align_line import MIN_POINTS, Line, stretches
from telemetry.clocks.align_order import Corridor, corridor

SURE = 4.0
"""Standard errors of a line that a bound holds: far fewer than one window in a thousand lies beyond."""
HIDDEN = 1.5
"""Standard deviations of one event: members may end apart by a constant that hides in the scatter, not beyond. (Where
ends are late on one side alone, by a time that is spread evenly from zero on, their median is off by 1.35 of what the
scatter is taken for; by an exponential time, 0.97.)"""
ENDS_FLOOR_NS = 10_000.0
"""How well the ends of a collective coincide at best: the last hop of the last chunk."""
STAMP_NS = 5_000.0
"""Stamps themselves are right within this: the tie of a device's clock, the anchor of a rank."""
MAX_STRAY = 0.02
"""Of bounds that stamps gone wrong may contradict."""
MAX_DRIFT = 1e-3
"""No clock runs faster or slower."""
MAX_BOUND_NS = 1_000_000_000
"""What is known no better is not known."""
MAX_PIECES = 8


def pieces_of(sights: Sights, method: str = ORDER) -> list[Piece]:
    """Pieces in the order of the events, none where the clock cannot be bound. ``method``: what bounds without ends are
    called."""
    seen = np.flatnonzero(~np.isnan(sights.ends_ns))
    if len(seen) < MIN_POINTS:
        return _usable(_in_order(sights, method))
    x = (sights.reading_ns - sights.reading_ns[0]).astype(np.float64)
    found: list[Piece] = []
    for stretch in stretches(x[seen], sights.ends_ns[seen])[:MAX_PIECES]:
        part = sights.between(int(seen[stretch.first]), int(seen[stretch.stop - 1]) + 1)
        found += _by_ends(part, stretch.line, int(sights.reading_ns[0])) or _in_order(part, method)
    return _usable(found or _in_order(sights, method))


def _usable(pieces: list[Piece]) -> list[Piece]:
    return [piece for piece in pieces if piece.bound_ns <= MAX_BOUND_NS and abs(piece.drift) <= MAX_DRIFT]


def _by_ends(sights: Sights, line: Line, zero_ns: int) -> list[Piece]:
    """The piece that ends of collectives give by their line, whose ``x`` counts from ``zero_ns``; none where the order
    of events contradicts it."""
    first_ns, last_ns = int(sights.reading_ns.min()), int(sights.reading_ns.max())
    at_ns = (first_ns + last_ns) // 2
    x = (sights.reading_ns - at_ns).astype(np.float64)
    line = replace(line, centre=line.centre - (at_ns - zero_ns))
    half_ns = (last_ns - first_ns) / 2
    bound_ns = _bound_of(line, half_ns)
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


def _bound_of(line: Line, half_ns: float) -> float:
    """All through a window that reaches so far to both sides of zero."""
    error_ns = max(line.error(-half_ns), line.error(half_ns))
    return SURE * error_ns + HIDDEN * line.sigma + line.misfit + ENDS_FLOOR_NS


def _allowed(
    line: Line, x: Floats, sights: Sights, right: np.ndarray[tuple[int, ...], np.dtype[np.bool_]], half_ns: float
) -> tuple[float, float]:
    """What the order of events allows the level at zero to be, whatever the slope is within its error."""
    room_ns = STAMP_NS + SURE * line.slope_error * 2 * half_ns
    least = (sights.low_ns - line.slope * x)[right].max(initial=-np.inf) - room_ns
    most = (sights.high_ns - line.slope * x)[right].min(initial=np.inf) + room_ns
    return float(least), float(most)


def _in_order(sights: Sights, method: str) -> list[Piece]:
    """Pieces by the order of events alone, each as long as one line fits."""
    found: list[Piece] = []
    first = 0
    while first < len(sights) and len(found) < MAX_PIECES:
        stop = _last_stop(sights, first)
        part = sights.between(first, stop)
        between = _corridor_of(part)
        if between is not None:
            found.append(_piece_in(part, between, method))
        first = stop
    return found


def _last_stop(sights: Sights, first: int) -> int:
    """How far one line fits from ``first`` on."""
    fits, stop = first + 1, len(sights)
    if not _contradicts(sights.between(first, stop)):
        return stop
    while stop - fits > 1:
        middle = (fits + stop) // 2
        fits, stop = (fits, middle) if _contradicts(sights.between(first, middle)) else (middle, stop)
    return fits


def _contradicts(sights: Sights) -> bool:
    two_sided = np.isfinite(sights.low_ns).any() and np.isfinite(sights.high_ns).any()
    return bool(two_sided) and _corridor_of(sights) is None


def _corridor_of(sights: Sights) -> Corridor | None:
    x = (sights.reading_ns - sights.reading_ns[0]).astype(np.float64)
    return corridor(x, sights.low_ns - STAMP_NS, sights.high_ns + STAMP_NS)


def _piece_in(sights: Sights, between: Corridor, method: str) -> Piece:
    return Piece(
        first_ns=int(sights.reading_ns.min()),
        last_ns=int(sights.reading_ns.max()),
        at_ns=int(sights.reading_ns[0]) + round(between.centre),
        offset_ns=between.level,
        drift=between.slope,
        bound_ns=between.bound,
        num_events=len(sights),
        method=method,
    )
