"""The time of each rank in a stage, step by step.

For a run with too many cells the store returns as many pooled cells as fit on a screen.
"""

import numpy as np

from diagnose.findings import StepWindow
from diagnose.model.load import load_view
from diagnose.model.view import Basis, RunView
from telemetry.stages import Stage
from telemetry.stores.interface import Reader
from telemetry.stores.queries import StageTotals
from ui.dashboard.data.core import Reads
from ui.dashboard.figures.pooling import pooled
from ui.dashboard.records import Floats, Ints, PooledTimes, RunFacts, StageTimes
from ui.dashboard.stage_times import (
    NOBODY,
    PROCESSOR,
    WALL,
    Compared,
    cells,
    cells_query,
    compared,
    compared_in,
    gathers_inside,
    groups_query,
    layers_query,
    may_meet_along_fewer_axes,
    means,
    means_query,
    step_by_step,
    summed,
)
from ui.dashboard.view_state import Clock, Metric, StepRange

OWN_WORK = (Stage.FORWARD_COMPUTE, Stage.BACKWARD_COMPUTE)


def stage_times(
    reads: Reads, facts: RunFacts, stage: Stage, clock: Clock, steps: StepRange, metric: Metric = Metric.RATIO
) -> StageTimes:
    """Time of each rank in a stage over the steps of a range that are stored: each step by itself, or, of more than
    ``reads.max_cells``, the mean over all of them. ``metric`` tells who is compared."""
    shown = _shown(facts, steps)
    among = _compared(reads, facts, stage, metric, shown)
    if _is_large(facts, shown, reads):
        asked = means_query(facts, stage, shown)
        return means(reads.ask(facts.summary, asked), stage, clock, shown, facts, among)
    key = ("stage-times", stage, clock, steps, among)
    return reads.kept(facts.summary, key, lambda: _by_step(reads, facts, stage, clock, shown, among))


def pooled_times(reads: Reads, facts: RunFacts, times: StageTimes, metric: Metric, steps: StepRange) -> PooledTimes:
    """Rank by step over the range that ``times`` were asked for."""
    shown = _shown(facts, steps)
    if not _is_large(facts, shown, reads):
        return pooled(times, metric)
    among = _compared(reads, facts, times.stage, metric, shown)
    query = cells_query(facts, times, metric, shown, among)
    return cells(reads.ask(facts.summary, query), query, facts)


def _compared(reads: Reads, facts: RunFacts, stage: Stage, metric: Metric, steps: Ints) -> Compared:
    usual = compared(stage, metric)
    if metric is Metric.WAIT and stage is Stage.PARAMS_ALL_GATHER and _gathers_inside(reads, facts, steps):
        return NOBODY
    if not len(steps) or not may_meet_along_fewer_axes(stage, metric, facts.topology):
        return usual
    return compared_in(reads.ask(facts.summary, groups_query(facts, stage, steps)), usual, facts.topology)


def _gathers_inside(reads: Reads, facts: RunFacts, steps: Ints) -> bool:
    return len(steps) > 0 and gathers_inside(reads.ask(facts.summary, layers_query(facts, steps)))


def _shown(facts: RunFacts, steps: StepRange) -> Ints:
    return facts.steps.step[(facts.steps.step >= steps.first) & (facts.steps.step <= steps.last)]


def _is_large(facts: RunFacts, steps: Ints, reads: Reads) -> bool:
    return len(steps) * facts.topology.world_size > reads.max_cells


def _by_step(reads: Reads, facts: RunFacts, stage: Stage, clock: Clock, steps: Ints, among: Compared) -> StageTimes:
    ns, basis = _own_work(reads, facts, stage, steps) if clock is Clock.OWN else (None, WALL)
    if ns is None:
        ns, basis = _totals(reads, facts, stage, clock, steps)
    return step_by_step(stage, steps, ns, basis, facts, among)


def _own_work(reads: Reads, facts: RunFacts, stage: Stage, steps: Ints) -> tuple[Floats | None, str]:
    """What the detectors compare, so that a picture and a verdict never disagree."""
    num_operations = facts.num_spans * len(steps) / max(1, len(facts.steps.step))
    if stage not in OWN_WORK or not 0 < num_operations <= reads.max_own_operations:
        return None, WALL
    run, window = facts.summary, StepWindow(first_step=int(steps[0]), last_step=int(steps[-1]))
    seen = reads.reports.newest_view(run)
    if seen is not None and np.isin(steps, seen.steps).all():
        return _work_of(seen, stage, steps)

    def load(reader: Reader) -> tuple[Floats | None, str]:
        return _work_of(load_view(reader, run.run_id, run.attempt, window), stage, steps)

    return reads.work_out(run, ("own-work", stage, window), load)


def _work_of(view: RunView, stage: Stage, steps: Ints) -> tuple[Floats | None, str]:
    """Shape [steps, ranks], and what it is; None where the view does not have it of all ``steps``."""
    work, rows = view.work.get(stage), np.isin(view.steps, steps)
    if work is None or rows.sum() != len(steps):
        return None, WALL
    return work.ns[rows], PROCESSOR if work.basis is Basis.PROCESSOR_TIME else str(work.basis)


def _totals(reads: Reads, facts: RunFacts, stage: Stage, clock: Clock, steps: Ints) -> tuple[Floats, str]:
    """Wall time, or processor time where it is asked for and measured everywhere."""
    num_ranks, run = facts.topology.world_size, facts.summary
    if not len(steps):
        return np.full((0, num_ranks), np.nan), WALL
    query = StageTotals(
        run_id=run.run_id,
        attempt=run.attempt,
        first_step=int(steps[0]),
        last_step=int(steps[-1]),
        stages=(int(stage),),
    )
    return summed(reads.ask(run, query), stage, clock, steps, num_ranks)
