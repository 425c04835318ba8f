"""The steps of an attempt in sums, and means over its newest window of up to 50 steps.

The list of runs, the overview and the metrics of a collector take the step time and MFU of a run from here.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from diagnose.goodput.share import StepSums, warm_up_ns
from telemetry.run_names import Attempt

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentMean:
    """A mean over the stored steps of the newest window of up to 50 steps. ``last_step`` is included."""

    mean: float
    first_step: int
    last_step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptSteps:
    """The steps of an attempt. ``steps_ns`` is the sum of all; ``recent_ns`` is the mean from ``recent_first`` on."""

    first_step: int
    last_step: int
    num_steps: int
    steps_ns: float
    recent_ns: float
    recent_first: int
    last_end_ns: int

    @property
    def recent(self) -> RecentMean:
        """The recent step time, nanoseconds."""
        return RecentMean(mean=self.recent_ns, first_step=self.recent_first, last_step=self.last_step)


def step_sums(steps: AttemptSteps | None, snapshot_ns: float, first_ns: float) -> StepSums | None:
    """The sums of an attempt from which goodput is computed. None if ``steps`` is None.

    Args:
        steps: its steps.
        snapshot_ns: its time in ``checkpoint-snapshot``.
        first_ns: time of its first step.
    """
    if steps is None:
        return None
    return StepSums(
        first_step=steps.first_step,
        last_step=steps.last_step,
        steps_ns=steps.steps_ns,
        snapshot_ns=snapshot_ns,
        warm_up_ns=warm_up_ns(first_ns, steps.steps_ns, steps.num_steps),
    )


def steps_by_attempt(rows: Iterable[Row]) -> dict[Attempt, AttemptSteps]:
    """Attempt -> its steps, from the rows of ``RunSteps``."""
    return {
        (row["run_id"], row["attempt"]): AttemptSteps(**{name: row[name] for name in AttemptSteps.__slots__})
        for row in rows
    }


def without_interrupted(steps: AttemptSteps, interrupted: Iterable[Row]) -> AttemptSteps | None:
    """``steps`` without the newest steps that are in the rows of ``InterruptedSteps``. None if no step is left."""
    for row in interrupted:
        num_recent, left = steps.last_step - steps.recent_first, steps.num_steps - 1
        if row["step"] != steps.last_step or left == 0:
            return None if left == 0 else steps
        steps_ns = steps.steps_ns - row["mean_ns"]
        is_alone = num_recent == 0
        recent_ns = steps.recent_ns * (num_recent + 1) - row["mean_ns"]
        steps = replace(
            steps,
            last_step=steps.last_step - 1,
            num_steps=left,
            steps_ns=steps_ns,
            recent_ns=steps_ns / left if is_alone else recent_ns / num_recent,
            recent_first=steps.first_step if is_alone else steps.recent_first,
        )
    return steps


def means_by_attempt(rows: Iterable[Row]) -> dict[Attempt, RecentMean]:
    """Attempt -> its mean, from the rows of ``RunRates``."""
    return {
        (row["run_id"], row["attempt"]): RecentMean(**{name: row[name] for name in RecentMean.__slots__})
        for row in rows
    }
