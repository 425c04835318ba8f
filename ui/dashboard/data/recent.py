"""The newest means of an attempt. The list of runs and the overview use the same queries for them."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from diagnose.model.run_state import RunState
from telemetry.stores.queries import InterruptedSteps, RunRates, RunSteps
from ui.dashboard.data.core import Reads
from ui.dashboard.records import RunSummary
from ui.dashboard.run_rows import AttemptSteps, RecentMean

Attempt = tuple[str, int]
Row = dict[str, Any]
STEP_TIME, MFU, TOKENS = "step-time", "mfu", "tokens-per-second"


def recent_means(reads: Reads, run: RunSummary) -> dict[str, RecentMean]:
    """By ``STEP_TIME`` (nanoseconds), ``MFU`` and ``TOKENS``: what is not known is left out."""
    of_run, attempt = (run.run_id,), (run.run_id, run.attempt)
    steps = steps_by_attempt(reads.ask(run, RunSteps(run_ids=of_run)).to_pylist())
    if run.state is RunState.DIED and attempt in steps:
        rows = reads.ask(run, InterruptedSteps(run_id=run.run_id, attempt=run.attempt)).to_pylist()
        left = without_interrupted(steps[attempt], rows)
        steps = {} if left is None else {attempt: left}
    means = {STEP_TIME: {of: one.recent for of, one in steps.items()}}
    for metric in (MFU, TOKENS):
        means[metric] = means_by_attempt(reads.ask(run, RunRates(run_ids=of_run, metric=metric)).to_pylist())
    return {name: found[attempt] for name, found in means.items() if attempt in found}


def steps_by_attempt(rows: Iterable[Row]) -> dict[Attempt, AttemptSteps]:
    """From the rows of ``RunSteps``."""
    return {
        (row["run_id"], row["attempt"]): AttemptSteps(**{name: row[name] for name in AttemptSteps.__slots__})
        for row in rows
    }


def without_interrupted(steps: AttemptSteps, interrupted: Iterable[Row]) -> AttemptSteps | None:
    """Without the steps in the rows of ``InterruptedSteps``; None where no step is left."""
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
    """From the rows of ``RunRates``."""
    return {
        (row["run_id"], row["attempt"]): RecentMean(**{name: row[name] for name in RecentMean.__slots__})
        for row in rows
    }
