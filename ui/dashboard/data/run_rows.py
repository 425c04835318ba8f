"""The rows of the list of runs: their order, and the means of steps that the list and the overview share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from diagnose.findings import Severity
from diagnose.model.recent_steps import RecentMean, means_by_attempt, steps_by_attempt, without_interrupted
from diagnose.model.run_state import NS_PER_S, RunState
from diagnose.run_figures import MFU
from telemetry.stores.queries import InterruptedSteps, RunRates, RunSteps
from telemetry.topology import Topology
from ui.dashboard.data.core import Reads
from ui.dashboard.records import RunSummary
from ui.dashboard.view_state import RunOrder

STEP_TIME, TOKENS = "step-time", "tokens-per-second"
OLD_NS = 86_400 * NS_PER_S
"""A run without a heartbeat for this long is listed last, even with findings."""
GOODPUT_MEANING = (
    "Goodput: the time in steps that were completed for the first time, without checkpoint snapshots, divided by the "
    "wall time of the run over all attempts. The goodput page of a run shows the use of the other time."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenFindings:
    """The open findings of a run. ``worst`` is a short label, ``summary`` a sentence."""

    count: int
    severity: Severity = Severity.INFO
    worst: str = ""
    summary: str = ""
    at_end: bool = False
    """Whether the run is over. The findings were open when it ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """The newest attempt of a run, and the goodput of the run. Times and the mean of ``step_time`` are nanoseconds.
    None means unknown."""

    run_id: str
    attempt: int
    num_attempts: int
    state: RunState
    what: str
    topology: Topology | None
    num_ranks: int
    last_step: int | None
    step_time: RecentMean | None
    mfu: RecentMean | None
    goodput: float | None
    findings: OpenFindings | None
    """None if the run was not analysed."""
    started_ns: int
    heard_ns: int
    tags: tuple[str, ...] = ()


def ordered(rows: Sequence[RunRow], order: RunOrder, now_ns: int) -> list[RunRow]:
    """Rows in the given order. Unknown values are last, and the newest run is first among equals."""
    newest_first = sorted(rows, key=lambda row: (-row.started_ns, row.run_id))
    key: dict[RunOrder, Callable[[RunRow], Any]] = {
        RunOrder.TROUBLE: lambda row: trouble(row, now_ns),
        RunOrder.NAME: lambda row: row.run_id,
        RunOrder.STEP_TIME: lambda row: (row.step_time is None, -row.step_time.mean if row.step_time else 0),
        RunOrder.MFU: lambda row: (row.mfu is None, row.mfu.mean if row.mfu else 0),
        RunOrder.GOODPUT: lambda row: (row.goodput is None, row.goodput or 0),
        RunOrder.RANKS: lambda row: -row.num_ranks,
        RunOrder.STARTED: lambda row: -row.started_ns,
    }
    return sorted(newest_first, key=key[order])


def trouble(row: RunRow, now_ns: int) -> int:
    """The urgency of a run: 0 is the most urgent."""
    if now_ns - row.heard_ns > OLD_NS:
        return 7
    if row.state in _NO_PROGRESS:
        return _NO_PROGRESS[row.state]
    worst = row.findings.severity if row.findings and row.findings.count else None
    if worst is not None and row.state is not RunState.ENDED:
        return {Severity.CRITICAL: 2, Severity.WARNING: 3}.get(worst, 5)
    return {RunState.SILENT: 4, RunState.LIVE: 5}.get(row.state, 6)


_NO_PROGRESS = {RunState.DIED: 0, RunState.STALLED: 1}


def recent_means(reads: Reads, run: RunSummary) -> dict[str, RecentMean]:
    """The known means by ``STEP_TIME`` (nanoseconds), ``MFU`` and ``TOKENS``."""
    of_run, attempt = (run.run_id,), (run.run_id, run.attempt)
    steps = steps_by_attempt(reads.ask(run, RunSteps(run_ids=of_run)).to_pylist())
    if run.state is RunState.DIED and attempt in steps:
        rows = reads.ask(run, InterruptedSteps(**run.key)).to_pylist()
        left = without_interrupted(steps[attempt], rows)
        steps = {} if left is None else {attempt: left}
    means = {STEP_TIME: {key: of_attempt.recent for key, of_attempt in steps.items()}}
    for metric in (MFU, TOKENS):
        means[metric] = means_by_attempt(reads.ask(run, RunRates(run_ids=of_run, metric=metric)).to_pylist())
    return {name: found[attempt] for name, found in means.items() if attempt in found}
