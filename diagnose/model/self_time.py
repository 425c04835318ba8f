"""Self time: what is left of a compute span when the collectives inside it are taken away.

compute   |=================|      |==========|
tp           |--|    |---|            |--|
ep                     |---|
self      |==|  |====|     ||      |==|  |=====|
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Covered:
    """The time that some spans cover, counted once where several overlap."""

    begin_ns: Int64s
    end_ns: Int64s
    """Of the stretches that are covered, ascending and apart from each other."""
    before_ns: Int64s
    """Covered time before each stretch, and, last, all of it."""

    def until(self, at_ns: Int64s) -> Int64s:
        """Covered time before each moment."""
        if not len(self.begin_ns):
            return np.zeros_like(at_ns)
        begun = np.searchsorted(self.begin_ns, at_ns, side="right")
        ahead = np.maximum(self.end_ns[np.maximum(begun - 1, 0)] - at_ns, 0)
        return np.asarray(self.before_ns[begun] - np.where(begun > 0, ahead, 0))


def covered(start_ns: Int64s, duration_ns: Int64s) -> Covered:
    """The time that spans cover, which are ordered by their start."""
    end_ns = np.maximum.accumulate(start_ns + duration_ns)
    apart = np.ones(len(start_ns), dtype=np.bool_)
    apart[1:] = start_ns[1:] > end_ns[:-1]
    first = np.flatnonzero(apart)
    begin, end = start_ns[first], end_ns[np.append(first[1:], len(start_ns)) - 1] if len(first) else end_ns
    return Covered(begin_ns=begin, end_ns=end, before_ns=np.concatenate([[0], np.cumsum(end - begin)]))


def self_time_ns(start_ns: Int64s, duration_ns: Int64s, inner_start_ns: Int64s, inner_duration_ns: Int64s) -> Int64s:
    """Self time of each span, in nanoseconds. Inner spans are ordered by their start and may overlap each other: each
    counts as far as it reaches into a span."""
    inner = covered(inner_start_ns, inner_duration_ns)
    return np.asarray(duration_ns - (inner.until(start_ns + duration_ns) - inner.until(start_ns)))
