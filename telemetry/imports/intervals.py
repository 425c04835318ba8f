"""Time intervals as two columns, begin and end, in nanoseconds."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranges:
    """Named intervals on threads, in the order of the file."""

    name: tuple[str, ...]
    begin_ns: Ints
    end_ns: Ints
    thread: Ints

    def select(self, chosen: Any) -> "Ranges":
        """The intervals at ``chosen``, a mask or indices."""
        places = np.arange(len(self.name))[np.asarray(chosen, dtype=None if len(chosen) else np.int64)]
        return Ranges(
            name=tuple(self.name[place] for place in places.tolist()),
            begin_ns=self.begin_ns[places],
            end_ns=self.end_ns[places],
            thread=self.thread[places],
        )

    def named(self, *prefixes: str) -> "Ranges":
        return self.select(np.array([name.startswith(prefixes) for name in self.name], dtype=bool))


def merged(begin: Ints, end: Ints, *, gap_ns: int = 0) -> tuple[Ints, Ints]:
    """The union of the intervals, in order. Gaps of up to ``gap_ns`` count as covered."""
    order = np.argsort(begin, kind="stable")
    begin, reach = begin[order], np.maximum.accumulate(end[order])
    apart = np.flatnonzero(begin[1:] > reach[:-1] + gap_ns) + 1
    first = np.concatenate([np.zeros(min(len(begin), 1), dtype=np.int64), apart])
    last = np.append(first[1:] - 1, len(begin) - 1) if len(begin) else first
    return begin[first], reach[last]


def inside(at: Ints, begin: Ints, end: Ints) -> npt.NDArray[np.bool_]:
    """For each moment, whether an interval contains it. The end of an interval is not part of it."""
    if not len(begin):
        return np.zeros(len(at), dtype=bool)
    begin, end = merged(begin, end)
    place = np.searchsorted(begin, at, side="right") - 1
    return (place >= 0) & (at < end[place])


def without(begin: Ints, end: Ints, other_begin: Ints, other_end: Ints) -> tuple[Ints, Ints]:
    """The time that an interval contains and no other interval (``other_begin``, ``other_end``) contains."""
    begin, end = merged(begin, end)
    other_begin, other_end = merged(other_begin, other_end)
    edges = np.unique(np.concatenate([begin, end, other_begin, other_end]))
    left, right = edges[:-1], edges[1:]
    kept = inside(left, begin, end) & ~inside(left, other_begin, other_end)
    return merged(left[kept], right[kept])
