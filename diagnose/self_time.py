"""Self time: what is left of a compute span when the collectives inside it are taken away.

compute   |=================|      |==========|
tp           |--|    |---|            |--|
self      |==|  |====|   |==|      |==|  |=====|
"""

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]


def self_time_ns(start_ns: Int64s, duration_ns: Int64s, inner_start_ns: Int64s, inner_duration_ns: Int64s) -> Int64s:
    """Self time of each span of one rank, in nanoseconds, never below zero.

    ``start_ns`` must ascend and the spans must not overlap, nor may the inner ones: each stands for one stream.
    An inner span counts towards the span that it begins in, as far as it reaches.
    """
    if not len(start_ns) or not len(inner_start_ns):
        return duration_ns.copy()
    owner = np.searchsorted(start_ns, inner_start_ns, side="right") - 1
    end_ns = start_ns + duration_ns
    inside = (owner >= 0) & (inner_start_ns < end_ns[np.maximum(owner, 0)])
    owner, begin = owner[inside], inner_start_ns[inside]
    covered = np.minimum(begin + inner_duration_ns[inside], end_ns[owner]) - begin
    return np.asarray(np.maximum(duration_ns - np.bincount(owner, covered, len(start_ns)).astype(np.int64), 0))
