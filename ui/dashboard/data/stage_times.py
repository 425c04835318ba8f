"""The time of each rank in a stage, step by step, and its ratio to the peers.

ranks x steps <= max_cells   each step: sums of the store, or the compute time of the detectors if they have examined
                             the steps, or if that takes at most max_own_operations
              more           compute time: the same, if the detectors have examined the steps
                             otherwise the mean of each rank over all steps, and a picture that the store has pooled:
                             HeatCells
"""

from typing import Literal

import numpy as np
import pyarrow as pa

from diagnose.model.compute_time import WORK_STAGES
from diagnose.model.view import Basis
from telemetry.stages import Stage, StageClass
from telemetry.stores.queries import HeatCells, RankStageMeans, StageTotals
from ui.dashboard.data.columns import by_step_and_rank, floats, ints
from ui.dashboard.data.compared_ranks import Compared, compared, ratio_to_peers
from ui.dashboard.data.compute_times import compute_times
from ui.dashboard.data.core import Reads
from ui.dashboard.data.exposed_times import exposed_ns
from ui.dashboard.figures.metrics import max_columns, pooled, ranks_a_row
from ui.dashboard.records import Floats, Ints, PooledTimes, RunFacts, StageTimes
from ui.dashboard.view_state import Clock, Metric, StepRange

WALL = "wall time, including waiting for other ranks"
PROCESSOR = "processor time"
WORST: dict[Metric, Literal["ratio", "mean_ns", "lead_ns"]] = {
    Metric.RATIO: "ratio",
    Metric.MILLISECONDS: "mean_ns",
    Metric.SHARE: "mean_ns",
    Metric.WAIT: "lead_ns",
    Metric.EXPOSED: "mean_ns",
}
"""The column of which the worst rank of a cell has the largest value."""


def stage_times(
    reads: Reads, facts: RunFacts, stage: Stage, clock: Clock, steps: StepRange, metric: Metric = Metric.RATIO
) -> StageTimes:
    """The time of each rank in a stage over the stored steps of a range. ``metric`` decides which ranks are compared.

    If there are more than ``reads.max_cells`` cells, the result is a single row with the mean over all steps.
    """
    shown = stored_steps(facts, steps)
    if metric is Metric.EXPOSED:
        return _exposed(reads, facts, stage, shown)
    among = compared(reads, facts, stage, metric, shown)
    is_examined = clock is Clock.OWN and _is_examined(reads, facts, stage, shown)
    if len(shown) * facts.topology.world_size > reads.max_cells and not is_examined:
        return _means(reads, facts, stage, clock, shown, among)
    key = ("stage-times", stage, clock, steps, among, is_examined)
    return reads.cached(facts.summary, key, lambda: _by_step(reads, facts, stage, clock, shown, among))


def pooled_times(
    reads: Reads, facts: RunFacts, times: StageTimes, metric: Metric, steps: StepRange, rows: Ints | None = None
) -> PooledTimes:
    """The cells of the heat map, rank by step, pooled. ``times``: the result of :func:`stage_times` for the same range.
    ``rows``: the ranks of the rows from the top, at least one. If None, all ranks in order."""
    shown, everyone = stored_steps(facts, steps), np.arange(facts.topology.world_size)
    if len(times.ns) == len(shown):
        return pooled(times, metric, rows)
    ranks = everyone if rows is None else rows
    order = () if np.array_equal(ranks, everyone) else tuple(ranks.tolist())
    query = _cells_query(facts, times, metric, shown, compared(reads, facts, times.stage, metric, shown), order)
    return _cells(reads.ask(facts.summary, query), query, facts, ranks)


def _exposed(reads: Reads, facts: RunFacts, stage: Stage, steps: Ints) -> StageTimes:
    ns = exposed_ns(reads, facts, stage, steps)
    step_ns = facts.steps.duration_ns[np.searchsorted(facts.steps.step, steps)]
    return StageTimes(stage=stage, steps=steps, ns=ns, ratio=np.full_like(ns, np.nan), step_ns=step_ns, basis=WALL)


def stored_steps(facts: RunFacts, steps: StepRange) -> Ints:
    """The steps of a range that have data, ascending."""
    return facts.steps.step[(facts.steps.step >= steps.first) & (facts.steps.step <= steps.last)]


def _is_examined(reads: Reads, facts: RunFacts, stage: Stage, steps: Ints) -> bool:
    """Whether the compute time of a stage in these steps is known from the newest report."""
    examined = reads.reports.newest_work(facts.summary) if stage in WORK_STAGES else None
    return examined is not None and stage in examined.work and examined.has(steps)


def _means(reads: Reads, facts: RunFacts, stage: Stage, clock: Clock, steps: Ints, among: Compared) -> StageTimes:
    """One row: the mean of each rank over all ``steps``."""
    first, last, num_ranks = int(steps[0]), int(steps[-1]), facts.topology.world_size
    query = RankStageMeans(**facts.summary.key, first_step=first, last_step=last, stages=(int(stage),))
    table = reads.ask(facts.summary, query)
    cpu, rank = floats(table, "mean_cpu_ns"), ints(table, "rank")
    uses_cpu = _uses_cpu(stage, clock, cpu)
    known = rank < num_ranks
    ns = np.full((1, num_ranks), np.nan)
    ns[0, rank[known]] = (cpu if uses_cpu else floats(table, "mean_ns"))[known]
    return StageTimes(
        stage=stage,
        steps=steps[:1],
        ns=ns,
        ratio=ratio_to_peers(ns, facts, among),
        step_ns=np.array([facts.steps.mean_ns(first, last + 1)]),
        basis=PROCESSOR if uses_cpu else WALL,
        num_steps=len(steps),
        group_mask=among.group_mask(facts.topology),
    )


def _by_step(reads: Reads, facts: RunFacts, stage: Stage, clock: Clock, steps: Ints, among: Compared) -> StageTimes:
    ns, basis = _compute_time(reads, facts, stage, steps) if clock is Clock.OWN else (None, WALL)
    if ns is None:
        ns, basis = _totals(reads, facts, stage, clock, steps)
    step_ns = facts.steps.duration_ns[np.searchsorted(facts.steps.step, steps)]
    ratio = ratio_to_peers(ns, facts, among)
    mask = among.group_mask(facts.topology)
    return StageTimes(stage=stage, steps=steps, ns=ns, ratio=ratio, step_ns=step_ns, basis=basis, group_mask=mask)


def _compute_time(reads: Reads, facts: RunFacts, stage: Stage, steps: Ints) -> tuple[Floats | None, str]:
    """Compute time in a stage, [steps, ranks], and its basis. None if it is not known."""
    found = compute_times(reads, facts, steps) if stage in WORK_STAGES else None
    work = None if found is None else found.get(stage)
    if work is None:
        return None, WALL
    return work.ns, PROCESSOR if work.basis is Basis.PROCESSOR_TIME else str(work.basis)


def _totals(reads: Reads, facts: RunFacts, stage: Stage, clock: Clock, steps: Ints) -> tuple[Floats, str]:
    """Processor time if the view asks for it and all ranks measured it. Otherwise wall time. Shape [steps, ranks]."""
    num_ranks, run = facts.topology.world_size, facts.summary
    if not len(steps):
        return np.full((0, num_ranks), np.nan), WALL
    query = StageTotals(**run.key, first_step=int(steps[0]), last_step=int(steps[-1]), stages=(int(stage),))
    table = reads.ask(run, query)
    cpu = floats(table, "cpu_ns")
    uses_cpu = _uses_cpu(stage, clock, cpu)
    value = cpu if uses_cpu else floats(table, "duration_ns")
    return by_step_and_rank(table, value, steps, num_ranks), PROCESSOR if uses_cpu else WALL


def _uses_cpu(stage: Stage, clock: Clock, cpu_ns: Floats) -> bool:
    return clock is Clock.OWN and stage.stage_class is StageClass.COMPUTE and bool(len(cpu_ns) and (cpu_ns >= 0).all())


def _cells_query(
    facts: RunFacts, times: StageTimes, metric: Metric, steps: Ints, among: Compared, order: tuple[int, ...]
) -> HeatCells:
    grid, run = facts.topology, facts.summary
    num_rows = len(order) or grid.world_size
    axes = [(degree, grid.stride(name)) for name, degree in grid.mesh if name in grid.axes_of(among.mask)]
    return HeatCells(
        **run.key,
        stage=int(times.stage),
        first_step=int(steps[0]),
        last_step=int(steps[-1]),
        num_ranks=grid.world_size,
        max_rows=-(-num_rows // ranks_a_row(num_rows)),
        max_columns=max_columns(num_rows),
        pp=grid.pp,
        tp=grid.tp,
        pp_stride=grid.stride("pp"),
        tp_stride=grid.stride("tp"),
        time="cpu_ns" if times.basis == PROCESSOR else "duration_ns",
        peers=among.peers,
        group_degrees=tuple(degree for degree, _ in axes),
        group_strides=tuple(stride for _, stride in axes),
        worst=WORST[metric],
        role_numbers=facts.role_numbers,
        order=order,
    )


def _cells(table: pa.Table, query: HeatCells, facts: RunFacts, ranks: Ints) -> PooledTimes:
    columns, column = np.unique(ints(table, "step"), return_inverse=True)
    depth = query.ranks_a_row
    shape = len(columns), -(-len(ranks) // depth)
    row = ints(table, "rank") // depth
    known = row < shape[1]
    place = column[known], row[known]
    ns, ratio = np.full(shape, np.nan), np.full(shape, np.nan)
    worst = np.tile(ranks[::depth], (shape[0], 1))
    ns[place], ratio[place] = floats(table, "mean_ns")[known], floats(table, "ratio")[known]
    worst[place] = ints(table, "hottest_rank")[known]
    first = np.maximum(columns, query.first_step)
    end = np.minimum(columns + query.steps_a_column, query.last_step + 1)
    return PooledTimes(
        ranks=ranks,
        steps=first,
        steps_a_column=query.steps_a_column,
        ranks_a_row=depth,
        over_steps="mean",
        ns=ns,
        ratio=ratio,
        step_ns=np.array([facts.steps.mean_ns(*column) for column in zip(first, end, strict=True)]),
        worst=worst,
    )
