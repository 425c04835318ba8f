"""What would be gained by putting right the worst worker, the two worst, and so on: each is a replay.

step time |*                            a steep fall: a few workers are to blame
          |  *   *    *       *         a flat line: it lies in all of them
ideal     |- - - - - - - - - - - -
           0 1   2    4       8         workers with ideal times
"""

from dataclasses import dataclass

import numpy as np

from diagnose.model.operations import Int64s
from diagnose.whatif.analysis import WORTH_EXPLAINING, FloatVector, Replayed, WhatIf, slots_of

NUMBERS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstWorkers:
    """Mean step times with ideal times on the worst workers."""

    workers: Int64s
    """(dp, pp), the worst first, [workers, 2]."""
    num_fixed: Int64s
    """How many of them have ideal times, from 0."""
    step_s: FloatVector

    def share_gone(self, ideal_s: float) -> FloatVector:
        """Share of the slowdown that is gone. ``ideal_s``: mean step time with all workers ideal."""
        return np.asarray((self.step_s[0] - self.step_s) / (self.step_s[0] - ideal_s))


def fix_the_worst(run: Replayed, figures: WhatIf) -> WorstWorkers | None:
    """None where there is no slowdown to take apart."""
    if figures.slowdown < WORTH_EXPLAINING:
        return None
    workers = figures.worst_first
    num_fixed = [0, *(number for number in NUMBERS if number <= len(workers))]
    pp, num_dp = run.assumptions.program.slots.pp, figures.topology.dp
    means = [float(run.assumptions.fixing(slots_of(workers[:number], pp, num_dp)).mean()) for number in num_fixed]
    return WorstWorkers(
        workers=workers[: num_fixed[-1]], num_fixed=np.array(num_fixed, dtype=np.int64), step_s=np.array(means)
    )
