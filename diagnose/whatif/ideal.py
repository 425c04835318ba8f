"""What operations took by themselves, and what they would take if nobody were slow.

    transfer = end - latest begin of the members     waiting is stripped from everything that meets

    ideal    = mean over all ranks and steps         compute: work is moved, not removed
             = median transfer                       communication: one bad transfer is no norm

Source: What-if analysis, arXiv 2505.05713, section 3.2.
"""

import numpy as np
import numpy.typing as npt

from diagnose.whatif.program import Across, Program
from diagnose.whatif.slots import Lanes, StepTimes
from telemetry.stages import STAGE_BY_CODE, Stage, StageClass

ORDER_S = 1e-2
"""A member that seems to have ended before the last one began by more than this is taken to have needed no time."""


def own_times(times: StepTimes, program: Program) -> Lanes:
    """What each slot took in each lane, waiting left out: seconds, [slots, steps, dp, tp]."""
    own = times.duration_s
    for one in program.rounds:
        if not one.meets:
            if one.across is not Across.NONE and times.work_s is not None:
                own[one.slots[0]] = _gathering(times, one.slots[0])
            continue
        members = list(one.slots)
        latest = times.begin_s[members].max(axis=0)
        if one.across is not Across.NONE:
            latest = latest.max(axis=1 if one.across is Across.DP else (1, 2), keepdims=True)
        own[members] = times.end_s[members] - latest
    own[own <= -ORDER_S] = 0.0
    return own


def _gathering(times: StepTimes, slot: int) -> npt.NDArray[np.float64]:
    """Of a compute that gathers parameters inside: own work, and what the last lane took beyond, [steps, dp, tp]."""
    assert times.work_s is not None
    work, begin, end = times.work_s[slot], times.begin_s[slot], times.end_s[slot]
    last = end.max(axis=(1, 2), keepdims=True) - (begin + work).max(axis=(1, 2), keepdims=True)
    return np.asarray(work + last)


def ideal_times(own: Lanes, program: Program) -> npt.NDArray[np.float64]:
    """What each slot would take: seconds, [slots]."""
    ideal = np.zeros(len(own))
    for code in np.unique(program.slots.stage).tolist():
        same = program.slots.stage == code
        ideal[same] = np.median(own[same]) if _is_communication(STAGE_BY_CODE[code]) else own[same].mean()
    return ideal


def _is_communication(stage: Stage) -> bool:
    """The norm of all gradients is a collective in all but its class."""
    return stage.stage_class is StageClass.COMMUNICATION or stage is Stage.OPTIMIZER_CLIP
