"""Slices of one stream side by side where they overlap: a track of a trace holds slices that nest, or follow.

lane 0   |===== a =====|      |== d ==|        d begins after b, too, and takes the first lane that is free
           |= c =|                             c lies inside a: below it, in the same lane
lane 1         |====== b ======|               b begins inside a and ends after it
"""

import numpy as np

from diagnose.model.span_columns import Ints


def nesting_order(start_ns: Ints, end_ns: Ints) -> Ints:
    """Rows by start, of equal starts the longer first: what contains comes before what it contains."""
    return np.lexsort((-end_ns, start_ns))


def lanes_of(start_ns: Ints, end_ns: Ints, *, nests: bool) -> Ints:
    """Lane of each slice, from 0. The slices come in :func:`nesting_order`.

    Args:
        nests: a slice may lie inside another of its lane; else they follow each other, so that whatever points into a
            slice points at no other.
    """
    lanes = np.zeros(len(start_ns), dtype=np.int64)
    if len(start_ns) < 2 or (start_ns[1:] >= np.maximum.accumulate(end_ns)[:-1]).all():
        return lanes
    open_until: list[list[int]] = []
    for row, (start, end) in enumerate(zip(start_ns.tolist(), end_ns.tolist(), strict=True)):
        lanes[row] = _lane(open_until, start, end, nests)
    return lanes


def _lane(open_until: list[list[int]], start: int, end: int, nests: bool) -> int:
    """The first lane that takes a slice; what is open there is brought up to date."""
    for lane, ends in enumerate(open_until):
        while ends and ends[-1] <= start:
            ends.pop()
        if not ends or (nests and end <= ends[-1]):
            ends.append(end)
            return lane
    open_until.append([end])
    return len(open_until) - 1
