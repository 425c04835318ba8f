"""From figures to findings: a what-if analysis of one window, with the gain of each fix (``cost.py``).

There is no conclusion if the replay differs from the measured step times by more than ``MAX_REPLAY_ERROR``: then
important operations are missing in the graph.

The analysis also has the gain of fixing the worst worker, the two worst, and so on:

step time |*                            a steep fall: a few workers are slow
          |  *   *    *       *         a flat line: all workers are slow
ideal     |- - - - - - - - - - - -
           0 1   2    4       8         workers with ideal times
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from diagnose.detectors.evidence import insufficient
from diagnose.model.operations import Int64s, Ints, step_time_ns
from diagnose.model.view import RunView
from diagnose.pipeline import Report, without_costs, worst_first
from diagnose.whatif.analysis import (
    MAX_REPLAY_ERROR,
    WORTH_EXPLAINING,
    Replayed,
    WhatIf,
    analyse,
    missed,
    replay_of,
    slots_of,
)
from diagnose.whatif.cost import Costed, Fix, Replay, with_costs
from diagnose.whatif.slots import FloatVector

NUMBERS_FIXED = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
NO_STEPS = np.zeros(0, dtype=np.int64)
_RECORD = (
    "record compute, pipeline and data-parallel stages on every rank, or choose steps without checkpoint and "
    "evaluation (--first-step, --last-step). `rankscope diagnose` works without them"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstWorkers:
    """Mean step times with ideal times on the worst workers."""

    workers: Int64s
    """(dp, pp), the worst first, [workers, 2]."""
    num_fixed: Int64s
    """Number of workers with ideal times, from 0."""
    step_s: FloatVector

    def share_gone(self, ideal_s: float) -> FloatVector:
        """Share of the slowdown that is removed. ``ideal_s``: mean step time with all workers ideal."""
        return np.asarray((self.step_s[0] - self.step_s) / (self.step_s[0] - ideal_s))


def fix_the_worst(run: Replayed, figures: WhatIf) -> WorstWorkers | None:
    """Step times with ideal times on the worst workers, or None if the slowdown is too small to explain."""
    if figures.slowdown < WORTH_EXPLAINING:
        return None
    workers = figures.worst_first
    num_fixed = [0, *(number for number in NUMBERS_FIXED if number <= len(workers))]
    pp, num_dp = run.assumptions.program.slots.pp, figures.topology.dp
    means = [float(run.assumptions.fixing(slots_of(workers[:number], pp, num_dp)).mean()) for number in num_fixed]
    return WorstWorkers(
        workers=workers[: num_fixed[-1]], num_fixed=np.array(num_fixed, dtype=np.int64), step_s=np.array(means)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusion:
    """A what-if analysis of one window. Fields are None or empty as far as it was not possible."""

    report: Report
    figures: WhatIf | None
    """None if the run could not be replayed; the first finding has the reason."""
    steps: Ints
    """Numbers of the steps that were replayed."""
    replay_error: float | None
    """Relative difference between replayed and measured step times; None if nothing was replayed."""
    fixes: tuple[Fix, ...] = ()
    step_s: float = np.nan
    """Measured step time over the replayed steps; NaN if nothing was replayed."""
    worst_workers: WorstWorkers | None = None
    """None if the replay does not hold, or if the slowdown is too small to explain."""

    @property
    def holds(self) -> bool:
        """Whether the replay agrees with the measured steps. Otherwise its figures mean nothing."""
        return self.replay_error is not None and self.replay_error <= MAX_REPLAY_ERROR

    @property
    def ideal_step_s(self) -> float:
        """Step time with all workers alike: the step time over the slowdown."""
        return np.nan if self.figures is None else self.step_s / self.figures.slowdown


def conclude(view: RunView) -> Conclusion:
    """Replay a view and explain its slowdown."""
    view = view.without_profiled()
    run, refusal = replay_of(view)
    replay = None if run is None else Replay(view, run)
    error = None if replay is None else replay.error
    if error is not None and error > MAX_REPLAY_ERROR:
        refusal = missed(error)
    holds = replay is not None and not refusal
    report = without_costs(view)
    costed = with_costs(report.findings, view, replay if replay is not None and holds else refusal)
    report = replace(report, findings=tuple(worst_first(each.finding for each in costed)))
    if replay is None:
        return Conclusion(report=_refused(report, view, refusal), figures=None, steps=NO_STEPS, replay_error=None)
    figures = analyse(replay.run, view.topology)
    return Conclusion(
        report=report if holds else _refused(report, view, refusal),
        figures=figures,
        steps=view.steps[figures.rows],
        replay_error=error,
        fixes=tuple(_fixes(costed, replay)) if holds else (),
        step_s=step_time_ns(view.step_ns[figures.rows]) / 1e9,
        worst_workers=fix_the_worst(replay.run, figures) if holds else None,
    )


def _refused(report: Report, view: RunView, why: str) -> Report:
    finding = insufficient(view, f"no what-if: {why}", _RECORD, detector="what-if")
    return replace(report, findings=(finding, *report.findings))


def _fixes(costed: Sequence[Costed], replay: Replay) -> Iterator[Fix]:
    """The fixes that the costs of the findings come from. Then changes that no finding needs, in all steps."""
    found = {each.fix.change: each.fix for each in costed if each.fix is not None}
    yield from found.values()
    for change in (replay.balanced_stages(), replay.equal_microbatches(), replay.planned_collections()):
        if change is not None and change.text not in found:
            yield replay.saved(change)
