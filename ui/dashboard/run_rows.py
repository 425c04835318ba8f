"""The rows of the list of runs, and their order. Pure functions of values."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from diagnose.findings import Severity
from diagnose.model.run_state import NS_PER_S, RunState
from telemetry.topology import Topology
from ui.dashboard.view_state import RunOrder

OLD_NS = 86_400 * NS_PER_S
"""Trouble of a run that nobody has heard of for so long is no longer put first."""
GOODPUT_IN_WORDS = (
    "Goodput: the time in steps whose work was kept, divided by the time from the first start of the run to its last "
    "heartbeat. All attempts count; a repeated step counts once. The rest is start-up, restarts, lost work, stalls, "
    "and time between steps."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentMean:
    """A mean over the newest window of up to 50 steps: over those of it that are stored, both ends included."""

    mean: float
    first_step: int
    last_step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptSteps:
    """The steps of an attempt. ``steps_ns``: of all of them; ``recent_ns``: a mean one of the newest window, from
    ``recent_first`` on."""

    first_step: int
    last_step: int
    num_steps: int
    steps_ns: float
    recent_ns: float
    recent_first: int
    last_end_ns: int

    @property
    def recent(self) -> RecentMean:
        """A step's time of late, nanoseconds."""
        return RecentMean(mean=self.recent_ns, first_step=self.recent_first, last_step=self.last_step)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenFindings:
    """What is wrong with a run now. ``worst``: in a few words; ``told``: in a sentence."""

    count: int
    severity: Severity = Severity.INFO
    worst: str = ""
    told: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """The newest attempt of a run, and its run's goodput. Times are wall clock, nanoseconds, as is the mean of
    ``step_time``; None: not known."""

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
    """None: nobody looked."""
    started_ns: int
    heard_ns: int


def goodput(attempts: Sequence[AttemptSteps | None], wall_ns: int) -> float | None:
    """The share of ``wall_ns`` in steps whose work was kept; None without a step. ``attempts``: from the first on.

    attempt 0   |0  1  2  3  4  5|              steps 4 and 5 were done again: two mean steps of it do not count
    attempt 1                      |4  5  6  7  8|
    wall        |------------------------------------|
    """
    kept_ns, done_again_from = 0.0, None
    for steps in reversed(attempts):
        if steps is None:
            continue
        cut = steps.last_step + 1 if done_again_from is None else min(steps.last_step + 1, done_again_from)
        share = max(0, cut - steps.first_step) / (steps.last_step + 1 - steps.first_step)
        kept_ns += steps.steps_ns * share
        done_again_from = min(steps.first_step, steps.first_step if done_again_from is None else done_again_from)
    return min(1.0, kept_ns / wall_ns) if done_again_from is not None and wall_ns > 0 else None


def ordered(rows: Sequence[RunRow], order: RunOrder, now_ns: int) -> list[RunRow]:
    """The worst, or whatever ``order`` asks for, first; what is not known last; among equals the newest first."""
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
    """How urgent a run is: 0 most."""
    if now_ns - row.heard_ns > OLD_NS:
        return 7
    if row.state in _STANDS:
        return _STANDS[row.state]
    worst = row.findings.severity if row.findings and row.findings.count else None
    if worst is not None and row.state is not RunState.ENDED:
        return {Severity.CRITICAL: 2, Severity.WARNING: 3}.get(worst, 5)
    return {RunState.SILENT: 4, RunState.LIVE: 5}.get(row.state, 6)


_STANDS = {RunState.DIED: 0, RunState.STALLED: 1}
