"""What an attempt has done of late: the list of runs and the overview of one tell it, from the same questions."""

from collections.abc import Iterable
from typing import Any

from telemetry.stores.queries import RunMetrics, RunSteps
from ui.reads.core import Reads
from ui.records import RunSummary
from ui.run_rows import AttemptSteps, RecentMean

Attempt = tuple[str, int]
Row = dict[str, Any]
STEP_TIME, MFU, TOKENS = "step-time", "mfu", "tokens-per-second"


def recent_means(reads: Reads, run: RunSummary) -> dict[str, RecentMean]:
    """By ``STEP_TIME`` (nanoseconds), ``MFU`` and ``TOKENS``: what is not known is left out."""
    of_run, attempt = (run.run_id,), (run.run_id, run.attempt)
    steps = steps_by_attempt(reads.ask(run, RunSteps(run_ids=of_run)).to_pylist())
    means = {STEP_TIME: {of: one.recent for of, one in steps.items()}}
    for metric in (MFU, TOKENS):
        means[metric] = means_by_attempt(reads.ask(run, RunMetrics(run_ids=of_run, metric=metric)).to_pylist())
    return {name: found[attempt] for name, found in means.items() if attempt in found}


def steps_by_attempt(rows: Iterable[Row]) -> dict[Attempt, AttemptSteps]:
    """From the rows of ``RunSteps``."""
    return {
        (row["run_id"], row["attempt"]): AttemptSteps(**{name: row[name] for name in AttemptSteps.__slots__})
        for row in rows
    }


def means_by_attempt(rows: Iterable[Row]) -> dict[Attempt, RecentMean]:
    """From the rows of ``RunMetrics``."""
    return {
        (row["run_id"], row["attempt"]): RecentMean(**{name: row[name] for name in RecentMean.__slots__})
        for row in rows
    }
