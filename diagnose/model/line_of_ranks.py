"""All ranks one behind the other on one line of time, so that they are searched at once.

rank 0 |-- its spans --|  rank 1 |-- its spans --|  rank 2 |--
"""

import numpy as np

from diagnose.model.operations import Int64s, Operations
from telemetry.errors import UsageError


class LineOfRanks:
    """The line of some operations.

    Raises:
        UsageError: they lie so far apart that stamps do not fit.
    """

    def __init__(self, everything: list[Operations]) -> None:
        self._zero = min(int(one.start_ns[one.present].min()) for one in everything)
        end = max(int(one.end_ns[one.present].max()) for one in everything)
        self._length = end - self._zero + 1
        if self._length * everything[0].start_ns.shape[2] >= 2**62:
            raise UsageError(
                f"the steps are {self._length / 8.64e13:.1f} days apart, on {everything[0].start_ns.shape[2]} ranks",
                hint="choose fewer steps: --first-step, --last-step",
            )

    def flat(self, some: list[Operations]) -> tuple[Int64s, Int64s, Int64s]:
        """Begins and durations in order of the line, and the place of each among ``some`` as they are stored."""
        begin = np.concatenate([self._begin(one) for one in some])
        duration = np.concatenate([one.duration_ns[one.present] for one in some])
        order = np.argsort(begin, kind="stable")
        return begin[order], duration[order], order

    def _begin(self, one: Operations) -> Int64s:
        rank = np.nonzero(one.present)[2]
        return np.asarray(one.start_ns[one.present] - self._zero + rank * self._length)
