"""From figures to findings: what the detectors say, with the cost that a replay gives it.

Nothing is concluded from a replay that does not meet the measured step times: then the graph misses something that
matters.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from diagnose.detectors.evidence import insufficient
from diagnose.findings import Finding, Kind, limit_by_cost
from diagnose.model.step_time import step_time_ns
from diagnose.model.view import IntVector, RunView
from diagnose.pipeline import Report, diagnose_view, worst_first
from diagnose.whatif.analysis import Replayed, WhatIf, analyse, replayed
from diagnose.whatif.fixes import Fix, balanced_stages, equal_microbatches, planned_collections, rank_like_peers
from diagnose.whatif.program import CircularProgramError
from diagnose.whatif.worst_workers import WorstWorkers, fix_the_worst

NAME = "what-if"
MAX_REPLAY_ERROR = 0.05
MOST_SUSPECTS = 8
"""Of which the remedy is priced: the worst."""
NO_STEPS = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusion:
    """A what-if analysis of one window, as far as it goes."""

    report: Report
    figures: WhatIf | None
    """None where nothing could be replayed; the first finding says why."""
    steps: IntVector
    """Numbers of the steps that were replayed."""
    replay_error: float | None
    """By how much the replayed step times miss the measured ones; None where nothing was replayed."""
    fixes: tuple[Fix, ...]
    step_s: float = np.nan
    """Step time over the replayed steps, as measured; NaN where nothing was replayed."""
    worst_workers: WorstWorkers | None = None
    """None also where there is no slowdown to take apart."""

    @property
    def holds(self) -> bool:
        """Whether the replay meets the measured steps, so that its figures mean something."""
        return self.replay_error is not None and self.replay_error <= MAX_REPLAY_ERROR

    @property
    def ideal_step_s(self) -> float:
        """What a step would take with all workers alike: the step time over the slowdown."""
        return np.nan if self.figures is None else self.step_s / self.figures.slowdown


def conclude(view: RunView) -> Conclusion:
    """Replay a view and explain its slowdown."""
    report = diagnose_view(view)
    run, refusal = replay_of(view)
    if run is None:
        return Conclusion(
            report=_refused(report, view, refusal), figures=None, steps=NO_STEPS, replay_error=None, fixes=()
        )
    figures = analyse(run, view.topology)
    steps = view.steps[figures.rows]
    measured_s = step_time_ns(view.step_ns[figures.rows]) / 1e9
    error = abs(float(figures.step_s.mean() / measured_s) - 1)
    if error > MAX_REPLAY_ERROR:
        return Conclusion(
            report=_refused(report, view, missed(error)),
            figures=figures,
            steps=steps,
            replay_error=error,
            fixes=(),
            step_s=measured_s,
        )
    cures = _cures(run, view, report)
    priced = tuple(worst_first(limit_by_cost(_priced(finding, cures)) for finding in report.findings))
    return Conclusion(
        report=replace(report, findings=priced),
        figures=figures,
        steps=steps,
        replay_error=error,
        fixes=tuple(cures.values()),
        step_s=measured_s,
        worst_workers=fix_the_worst(run, figures),
    )


def replay_of(view: RunView) -> tuple[Replayed | None, str]:
    """A view ready for questions, and why it is not where it is None."""
    try:
        return replayed(
            view.operations, view.topology, view.hosts, view.work
        ), "no step holds the same operations on every rank"
    except CircularProgramError:
        return None, "the recorded operations wait for each other in a circle: they are not all of a step, or misnamed"


def missed(error: float) -> str:
    """Why nothing is concluded from a replay that is so far off, as a share of the measured time."""
    return f"the replay misses the measured step times by {error:.1%}: something that matters was not recorded"


def _refused(report: Report, view: RunView, why: str) -> Report:
    finding = insufficient(view, f"no what-if: {why}", _RECORD, detector=NAME)
    return replace(report, findings=(finding, *report.findings))


_RECORD = (
    "record compute, pipeline and data-parallel stages on every rank, or choose steps without checkpoints and "
    "evaluation: --first-step, --last-step; `rankscope diagnose` needs none of this"
)


def _cures(run: Replayed, view: RunView, report: Report) -> dict[int | Kind, Fix]:
    """What each remedy gains, by the rank or the kind of finding that it cures; each is replayed once."""
    compute = (one for one in report.findings if one.kind in (Kind.COMPUTE_STRAGGLER, Kind.HOST_CONTENTION))
    suspects = [*dict.fromkeys(rank for one in compute for rank in one.ranks)][:MOST_SUSPECTS]
    cures: dict[int | Kind, Fix | None] = {
        **{rank: rank_like_peers(run, view.topology, rank) for rank in suspects},
        Kind.STAGE_IMBALANCE: balanced_stages(run),
        Kind.DATA_IMBALANCE: equal_microbatches(run),
        Kind.LATE_LAUNCH: planned_collections(run, view.operations, view.topology),
    }
    return {what: fix for what, fix in cures.items() if fix is not None}


def _priced(finding: Finding, cures: Mapping[int | Kind, Fix]) -> Finding:
    """With what putting it right would gain in place of the detector's estimate."""
    alone = finding.kind is Kind.COMPUTE_STRAGGLER and len(finding.ranks) == 1
    by_kind = finding.kind in (Kind.STAGE_IMBALANCE, Kind.DATA_IMBALANCE)
    fix = cures.get(finding.ranks[0]) if alone else cures.get(finding.kind) if by_kind else None
    if fix is None:
        return finding
    saved = f"{fix.share:.1%} of step time" if fix.gains else "too little to be measured"
    return replace(
        finding,
        seconds_lost=max(fix.saved_s, 0.0),
        evidence={**finding.evidence, "saved_if_put_right": saved},
    )
