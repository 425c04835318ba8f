"""Replay a step: from durations to the times at which everything begins and ends.

    begin = latest end of what comes before (+ gap)
    end   = begin + duration                                  a slot by itself
    end   = latest begin of the members + own transfer        a meeting
    end   = latest begin + duration of the lanes              a compute that gathers parameters inside

One pass over the rounds; each round is a few array operations over all lanes at once. Lanes are
[assumptions, steps, dp, tp]: every step under each of several assumptions about durations.
Source: algorithm of What-if analysis, arXiv 2505.05713, section 3.3.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from diagnose.whatif.program import Across, Program

Lane = npt.NDArray[np.float64]
"""Seconds, [assumptions, steps, dp, tp]; an axis of length one stands for all its lanes."""

Durations = Callable[[int], Lane]
"""Slot -> what it takes: its own duration, or its transfer where it is in a meeting."""
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
            meeting_ends = [latest + durations(slot) for slot in one.slots]
        else:
            meeting_ends = [_latest([begins[0] + durations(one.slots[0])], one.across)]
        for slot, begin, end in zip(one.slots, begins, meeting_ends, strict=True):
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
