"""Replay a step: from durations to the times at which everything begins and ends.

    begin = latest end of what comes before (+ gap)
    end   = begin + duration                                  a slot by itself
    end   = latest begin of the members + own transfer        a collective
    end   = latest begin + duration of the lanes              a compute that gathers parameters inside

One pass over the rounds; each round is a few array operations over all lanes at once. Lanes are
[assumptions, steps, dp, tp]: every step under each of several assumptions about durations.
Source: algorithm of What-if analysis, arXiv 2505.05713, section 3.3.

Step times under assumptions: each slot as it was, or as if nobody were slow there.

An assumption about slots holds in all lanes. An assumption about one dp replica needs no more than two of them: the
replica as it was, and any of the others, which are all alike once they are ideal.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from diagnose.model.operations import Bools
from diagnose.whatif.program import Across, Program
from diagnose.whatif.slots import Lanes

Lane = npt.NDArray[np.float64]
"""Seconds, [assumptions, steps, dp, tp]; an axis of length one stands for all its lanes."""

Durations = Callable[[int], Lane]
"""Slot -> what it takes: its own duration, or its transfer where it is in a collective."""
Watch = Callable[[int, Lane, Lane], None]
"""Told of each slot, its begin and its end."""


def replay(
    program: Program, durations: Durations, *, gaps: Durations | None = None, watch: Watch | None = None
) -> Lane:
    """When the last operation of each step ends, seconds from the step's begin: [assumptions, steps].

    ``gaps`` delay a slot after all that it depends on has ended.
    """
    uses = _uses(program)
    ends: dict[int, Lane] = {}
    last: Lane = np.zeros((1, 1))
    for one in program.rounds:
        begins = [_begin(program.before[slot], ends, gaps(slot) if gaps else None) for slot in one.slots]
        if one.meets:
            latest = _latest(begins, one.across)
            collective_ends = [latest + durations(slot) for slot in one.slots]
        else:
            collective_ends = [_latest([begins[0] + durations(one.slots[0])], one.across)]
        for slot, begin, end in zip(one.slots, begins, collective_ends, strict=True):
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


def _uses(program: Program) -> list[int]:
    """How often each slot's end is asked for."""
    uses = [0] * len(program.slots)
    for earlier in program.before:
        for slot in earlier:
            uses[slot] += 1
    return uses


def _begin(before: tuple[int, ...], ends: dict[int, Lane], gap: Lane | None) -> Lane:
    begin: Lane = np.zeros((1, 1, 1, 1))
    for earlier in before:
        begin = np.maximum(begin, ends[earlier])
    return begin if gap is None else begin + gap


def _latest(begins: list[Lane], across: Across) -> Lane:
    latest = begins[0]
    for begin in begins[1:]:
        latest = np.maximum(latest, begin)
    if across is Across.NONE:
        return latest
    return np.asarray(latest.max(axis=-2 if across is Across.DP else (-2, -1), keepdims=True))


StepSeconds = npt.NDArray[np.float64]
"""[assumptions, steps]."""

CACHED = 65_536
"""Values of one slot that are computed on at a time: half a megabyte stays in a core's cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumptions:
    """A program with its slots' own times, and their ideal."""

    program: Program
    own_s: Lanes
    ideal_s: npt.NDArray[np.float64]

    @property
    def num_steps(self) -> int:
        return int(self.own_s.shape[1])

    @property
    def num_dp(self) -> int:
        return int(self.own_s.shape[2])

    def keeping(self, kept: Bools) -> StepSeconds:
        """Step times when only ``kept`` [assumptions, slots] stays as it was and all else is ideal."""
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
        """Step times when only one dp replica stays as it was: [dp, steps]."""
        return _in_batches(self._keep_replicas, np.arange(self.num_dp), 2 * self.num_steps * self.own_s.shape[3])

    def _keep_replicas(self, replicas: npt.NDArray[np.int64]) -> StepSeconds:
        def durations(slot: int) -> Lane:
            as_it_was = self.own_s[slot][:, replicas].transpose(1, 0, 2)[:, :, None, :]
            if self.num_dp == 1:
                return np.asarray(as_it_was)
            return np.concatenate([as_it_was, np.full_like(as_it_was, self.ideal_s[slot])], axis=2)

        return np.broadcast_to(replay(self.program, durations), (len(replicas), self.num_steps))

    def fixing(self, where: Bools) -> StepSeconds:
        """Step times with ideal times ``where`` [slots, dp], all else as it was: [1, steps]."""

        def durations(slot: int) -> Lane:
            return np.asarray(np.where(where[slot][:, None], self.ideal_s[slot], self.own_s[slot])[None])

        return np.broadcast_to(replay(self.program, durations), (1, self.num_steps))

    def with_times(self, own_s: Lanes) -> StepSeconds:
        """Step times with other times in place of the slots' own: [1, steps]."""
        return np.broadcast_to(replay(self.program, lambda slot: np.asarray(own_s[slot][None])), (1, self.num_steps))


def _in_batches(run: Callable[[Any], StepSeconds], items: npt.NDArray[Any], values_each: int) -> StepSeconds:
    size = max(1, CACHED // max(values_each, 1))
    return np.concatenate([run(items[first : first + size]) for first in range(0, len(items), size)])
