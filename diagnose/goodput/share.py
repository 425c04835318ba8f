"""The goodput of a run from sums over its steps: cheap enough for a list of hundreds of runs.

The ledger applies the same rules step by step: which steps are repeated, how long the first step warms up, and where
wall time begins and ends. Both figures differ only by rounding within an attempt: sums know the mean step time, not
that of each step.

    attempt 0   |0  1  2  3  4  5|                     useful
    attempt 1                        |4  5  6  7  8|   4 and 5 are repeated, 6 to 8 useful
    wall        |----------------------------------|
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from diagnose.goodput.timeline import Ints

JOB_IS_OVER = ("done", "give-up")
"""Decisions of the driver that end a job."""


@dataclass(slots=True, kw_only=True)
class CompletedSteps:
    """The steps that attempts have completed so far: a range, because each attempt continues at a checkpoint of it."""

    first: int = 0
    last: int = -1

    def are_in(self, numbers: Ints) -> npt.NDArray[np.bool_]:
        """Which of these steps are repeated."""
        return (numbers >= self.first) & (numbers <= self.last)

    def num_in(self, first: int, last: int) -> int:
        """How many steps from ``first`` to ``last`` are repeated."""
        return max(0, min(last, self.last) - max(first, self.first) + 1)

    def add(self, first: int, last: int) -> None:
        """Add the steps that an attempt completed."""
        self.first, self.last = (first, last) if self.last < 0 else (min(first, self.first), max(last, self.last))


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSums:
    """The completed steps of one attempt: their time, and within it the time in ``checkpoint-snapshot`` and of the
    warm-up."""

    first_step: int
    last_step: int
    steps_ns: float
    snapshot_ns: float = 0.0
    warm_up_ns: float = 0.0


LEAST_WARM_UP = 0.25
"""A first step without a warm-up can also be longer than the mean: step times vary. Below this share of the mean of the
other steps, all of the first step is ordinary."""


def warm_up_ns(first_ns: float, steps_ns: float, num_steps: int) -> float:
    """By how much the first step of an attempt exceeds the mean of its other steps. 0 for a single step, and if it
    exceeds them by less than ``LEAST_WARM_UP``.

    The first step compiles, allocates and fills caches. After a restart this is a part of the restart.

    Args:
        first_ns: time of the first step.
        steps_ns: time of all steps, the first one included.
        num_steps: number of all steps.
    """
    if num_steps < 2:
        return 0.0
    mean_ns = (steps_ns - first_ns) / (num_steps - 1)
    return first_ns - mean_ns if first_ns > (1 + LEAST_WARM_UP) * mean_ns else 0.0


def goodput_of_sums(attempts: Iterable[StepSums | None], wall_ns: int) -> float | None:
    """The share of useful time in ``wall_ns``. None without a step. ``attempts``: in order, the first attempt first."""
    useful_ns, completed, num_steps = 0.0, CompletedSteps(), 0
    for sums in attempts:
        if sums is None:
            continue
        span = sums.last_step - sums.first_step + 1
        share = 1 - completed.num_in(sums.first_step, sums.last_step) / span
        useful_ns += max(0.0, sums.steps_ns - sums.snapshot_ns - sums.warm_up_ns) * share
        completed.add(sums.first_step, sums.last_step)
        num_steps += span
    return min(1.0, useful_ns / wall_ns) if num_steps and wall_ns > 0 else None


def wall_range(
    started_ns: int, heard_ns: int, host_wall_ns: int | None, decisions: Sequence[tuple[int, str]]
) -> tuple[int, int]:
    """Begin and end of a run.

    Args:
        started_ns: start of the first rank of the first attempt.
        heard_ns: the newest data of all attempts.
        host_wall_ns: the time from start to newest data by the clock of one host, if one host had ranks all the time.
            If it is None, clocks of different hosts are compared.
        decisions: time and name of the driver's decisions in order of time. The first decision is the begin if it is
            earlier than ``started_ns``. The last decision is the end if it ended the job, or is later than the ranks.
    """
    end_ns = heard_ns if host_wall_ns is None else started_ns + host_wall_ns
    if not decisions:
        return started_ns, max(started_ns, end_ns)
    begin_ns = min(started_ns, decisions[0][0])
    last_ns, name = decisions[-1]
    return begin_ns, max(begin_ns, last_ns if name in JOB_IS_OVER else max(end_ns, last_ns))
