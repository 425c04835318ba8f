"""Replay a step: from the durations of slots to the times at which they begin and end.

    begin = latest end of what comes before (+ gap)
    end   = begin + duration                                  a slot by itself
    end   = latest begin of the members + own transfer        a collective
    end   = latest begin + duration of the lanes              a compute that has collectives of replicas inside

One pass over the rounds. Each round is a few array operations over all lanes at once. Lanes are
[assumptions, steps, dp, tp]: every step under each of several assumptions about durations. An assumption about one dp
replica needs only two lanes along dp: one for this replica as recorded, and one for all others, which are equal
because they are ideal.

Own and ideal times of operations:

    transfer = end - latest begin of the members     excludes waiting

    ideal    = mean over all ranks and steps         compute: work is moved, not removed
             = median transfer                       communication: one bad transfer does not count
             = mean compute + median of the rest     a compute that has collectives of replicas inside

Source: algorithm of What-if analysis, arXiv 2505.05713, sections 3.2 and 3.3.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from diagnose.model.operations import Bools, Int64s
from diagnose.whatif.program import Across, Program, Round
from diagnose.whatif.slots import FloatVector, Lanes, StepTimes
from telemetry.stages import STAGE_BY_CODE, Stage, StageClass

ORDER_S = 1e-2
"""If a member ended more than this before the last one began, its own time is assumed to be zero."""
Lane = npt.NDArray[np.float64]
"""Seconds, [assumptions, steps, dp, tp]; an axis of length one stands for all its lanes."""

Durations = Callable[[int], Lane]
"""Slot -> its own duration, or its transfer if it is in a collective."""
Watch = Callable[[int, Lane, Lane], None]
"""Receives each slot, its begin and its end."""
StepSeconds = npt.NDArray[np.float64]
"""[assumptions, steps]."""
CACHED = 65_536
"""Values of one slot that are computed at a time: half a megabyte fits into a core's cache."""


def replay(
    program: Program, durations: Durations, *, gaps: Durations | None = None, watch: Watch | None = None
) -> Lane:
    """End of the last operation of each step, seconds from the step's begin: [assumptions, steps].

    ``gaps`` delay a slot after the end of all its dependencies.
    """
    uses = [0] * len(program.slots)  # how often the end of each slot is needed
    for before in program.before:
        for slot in before:
            uses[slot] += 1
    ends: dict[int, Lane] = {}
    last: Lane = np.zeros((1, 1))
    for round_ in program.rounds:
        begins = [latest_end(program.before[slot], ends) for slot in round_.slots]
        if gaps:
            begins = [begin + gaps(slot) for slot, begin in zip(round_.slots, begins, strict=True)]
        if round_.meets:
            latest = _across(reduce(np.maximum, begins), round_.across)
            round_ends = [latest + durations(slot) for slot in round_.slots]
        else:
            alone = begins[0] + durations(round_.slots[0])
            round_ends = [alone if round_.across is Across.NONE else _in_groups(alone, program.inner_groups)]
        for slot, begin, end in zip(round_.slots, begins, round_ends, strict=True):
            if watch:
                watch(slot, begin, end)
            if uses[slot]:
                ends[slot] = end
            else:
                last = np.maximum(last, end.max(axis=(-2, -1)))
            for earlier in program.before[slot]:
                uses[earlier] -= 1
                if not uses[earlier]:
                    del ends[earlier]
    return last


def latest_end(slots: tuple[int, ...], ends: dict[int, Lane]) -> Lane:
    """Time at which all of ``slots`` have ended. Zero without slots."""
    latest: Lane = np.zeros((1, 1, 1, 1))
    for slot in slots:
        latest = np.maximum(latest, ends[slot])
    return latest


def _across(lanes: Lane, across: Across) -> Lane:
    """The latest time of the lanes along ``across``. The same lanes if they do not wait for each other."""
    if across is Across.NONE:
        return lanes
    return np.asarray(lanes.max(axis=-2 if across is Across.DP else (-2, -1), keepdims=True))


def _in_groups(lanes: Lane, groups: Int64s | None) -> Lane:
    """The latest of the lanes in each group of replicas and their tensor groups. ``groups``: see ``Program``.

    One lane that stands for all replicas, or two lanes for one replica and the others, are treated as a single group:
    the group of that replica never ends earlier than the other groups.
    """
    if groups is None or lanes.shape[-2] != groups.size:
        return np.asarray(lanes.max(axis=(-2, -1), keepdims=True))
    members = lanes.max(axis=-1, keepdims=True)[..., groups, :]
    found = np.empty((*lanes.shape[:-1], 1))
    found[..., groups, :] = members.max(axis=-2, keepdims=True)
    return found


def own_times(times: StepTimes, program: Program) -> Lanes:
    """Time of each slot in each lane, without waiting: seconds, [slots, steps, dp, tp]."""
    own = times.end_s - times.begin_s
    for round_ in program.rounds:
        if not round_.meets:
            if _exchanges_inside(round_) and times.work_s is not None:
                slot = round_.slots[0]
                work, begin, end = times.work_s[slot], times.begin_s[slot], times.end_s[slot]
                # Compute time, and the time of the last lane beyond it.
                last = _in_groups(end, program.inner_groups) - _in_groups(begin + work, program.inner_groups)
                own[slot] = work + last
            continue
        members = list(round_.slots)
        latest = _across(times.begin_s[members].max(axis=0), round_.across)
        own[members] = times.end_s[members] - latest
    own[own <= -ORDER_S] = 0.0
    return own


def _exchanges_inside(round_: Round) -> bool:
    """Whether a round is a compute that has collectives of replicas inside."""
    return not round_.meets and round_.across is not Across.NONE


def ideal_times(own: Lanes, program: Program, work: Lanes | None = None) -> FloatVector:
    """Ideal time of each slot: seconds, [slots]. ``work``: compute times, the part of ``own`` without collectives."""
    ideal = np.zeros(len(own))
    inside = np.zeros(len(own), dtype=bool)
    inside[[slot for round_ in program.rounds if _exchanges_inside(round_) for slot in round_.slots]] = True
    for code in np.unique(program.slots.stage).tolist():
        stage, same = STAGE_BY_CODE[code], program.slots.stage == code
        # The norm of all gradients is a collective, although its class is another one.
        if stage.stage_class is StageClass.COMMUNICATION or stage is Stage.OPTIMIZER_CLIP:
            ideal[same] = np.median(own[same])
        elif work is not None and inside[same].all():
            ideal[same] = work[same].mean() + np.median(own[same] - work[same])
        else:
            ideal[same] = own[same].mean()
    return ideal


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumptions:
    """A program with the own and ideal times of its slots."""

    program: Program
    own_s: Lanes
    ideal_s: FloatVector

    @property
    def num_steps(self) -> int:
        return int(self.own_s.shape[1])

    @property
    def num_dp(self) -> int:
        return int(self.own_s.shape[2])

    def keeping(self, kept: Bools) -> StepSeconds:
        """Step times if only the slots ``kept`` [assumptions, slots] are as recorded, and the others are ideal."""
        return _in_batches(self._keep, kept, int(np.prod(self.own_s.shape[1:])))

    def _keep(self, kept: Bools) -> StepSeconds:
        def durations(slot: int) -> Lane:
            mine = kept[:, slot]
            if mine.all():
                return np.asarray(self.own_s[slot][None])
            if not mine.any():
                return np.full((1, 1, 1, 1), self.ideal_s[slot])
            return np.asarray(np.where(mine[:, None, None, None], self.own_s[slot][None], self.ideal_s[slot]))

        return np.broadcast_to(replay(self.program, durations), (len(kept), self.num_steps))

    def keeping_replica(self) -> StepSeconds:
        """Step times if only one dp replica is as recorded: [dp, steps]."""
        return _in_batches(self._keep_replicas, np.arange(self.num_dp), 2 * self.num_steps * self.own_s.shape[3])

    def _keep_replicas(self, replicas: npt.NDArray[np.int64]) -> StepSeconds:
        def durations(slot: int) -> Lane:
            recorded = self.own_s[slot][:, replicas].transpose(1, 0, 2)[:, :, None, :]
            if self.num_dp == 1:
                return np.asarray(recorded)
            return np.concatenate([recorded, np.full_like(recorded, self.ideal_s[slot])], axis=2)

        return np.broadcast_to(replay(self.program, durations), (len(replicas), self.num_steps))

    def fixing(self, where: Bools) -> StepSeconds:
        """Step times with ideal times in ``where`` [slots, dp], and recorded times elsewhere: [1, steps]."""

        def durations(slot: int) -> Lane:
            return np.asarray(np.where(where[slot][:, None], self.ideal_s[slot], self.own_s[slot])[None])

        return np.broadcast_to(replay(self.program, durations), (1, self.num_steps))

    def with_times(self, own_s: Lanes) -> StepSeconds:
        """Step times with other times in place of the slots' own: [1, steps]."""
        return np.broadcast_to(replay(self.program, lambda slot: np.asarray(own_s[slot][None])), (1, self.num_steps))


def _in_batches(run: Callable[[Any], StepSeconds], items: npt.NDArray[Any], values_each: int) -> StepSeconds:
    size = max(1, CACHED // max(values_each, 1))
    return np.concatenate([run(items[first : first + size]) for first in range(0, len(items), size)])
