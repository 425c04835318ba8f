"""The time of each rank in a stage, step by step, and its ratio to the peers.

ranks x steps <= MAX_CELLS   each step: sums of the store, or the compute time of the detectors if that takes at most
                             MAX_OWN_OPERATIONS
              more           the mean of each rank over all steps, and a picture that the store has pooled: HeatCells
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from diagnose.findings import StepWindow
from diagnose.model.collectives import GROUP_STAGES, group_axis
from diagnose.model.compute_time import WORK_STAGES
from diagnose.model.gathers import LEAST_GATHERS
from diagnose.model.load import load_view
from diagnose.model.operations import usual_mask
from diagnose.model.peers import peer_median
from diagnose.model.view import Basis, RunView
from telemetry.group_names import masks_of_peers, resolved_peers
from telemetry.stages import Stage, StageClass
from telemetry.stores.interface import Reader
from telemetry.stores.queries import HeatCells, RankStageMeans, Spans, StageGroups, StageTotals
from telemetry.stores.queries.heat_map import Peers
from telemetry.topology import AXES, Axis, Topology
from ui.dashboard.data.columns import by_step_and_rank, floats, ints
from ui.dashboard.data.core import Reads
from ui.dashboard.data.exposed_times import exposed_ns
from ui.dashboard.figures.metrics import max_columns, pooled, ranks_a_row
from ui.dashboard.records import Floats, Ints, PooledTimes, RunFacts, StageTimes
from ui.dashboard.view_state import Clock, Metric, StepRange

WALL = "wall time, including waiting for other ranks"
PROCESSOR = "processor time"
COMPUTE_STAGES = (Stage.FORWARD_COMPUTE, Stage.BACKWARD_COMPUTE)
WORST: dict[Metric, Literal["ratio", "mean_ns", "lead_ns"]] = {
    Metric.RATIO: "ratio",
    Metric.MILLISECONDS: "mean_ns",
    Metric.SHARE: "mean_ns",
    Metric.WAIT: "lead_ns",
    Metric.EXPOSED: "mean_ns",
}
"""The column of which the worst rank of a cell has the largest value."""
GROUPS: dict[Axis, Peers] = {"dp": "dp_group", "tp": "tp_group"}
"""The peers for a collective along an axis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Which ranks are compared with each other."""

    peers: Peers
    mask: int = 0
    """The axes of an ``axes_group``. 0: no comparison."""


NOBODY = Compared(peers="axes_group")


def stage_times(
    reads: Reads, facts: RunFacts, stage: Stage, clock: Clock, steps: StepRange, metric: Metric = Metric.RATIO
) -> StageTimes:
    """The time of each rank in a stage over the stored steps of a range. ``metric`` decides which ranks are compared.

    For more than ``reads.max_cells`` cells: a single row with the mean over all steps.
    """
    shown = _shown(facts, steps)
    if metric is Metric.EXPOSED:
        return _exposed(reads, facts, stage, shown)
    among = _compared(reads, facts, stage, metric, shown)
    if _is_large(facts, shown, reads):
        return _means(reads, facts, stage, clock, shown, among)
    key = ("stage-times", stage, clock, steps, among)
    return reads.cached(facts.summary, key, lambda: _by_step(reads, facts, stage, clock, shown, among))


def pooled_times(reads: Reads, facts: RunFacts, times: StageTimes, metric: Metric, steps: StepRange) -> PooledTimes:
    """Rank by step, pooled. ``times``: the result of :func:`stage_times` for the same range."""
    shown = _shown(facts, steps)
    if metric is Metric.EXPOSED or not _is_large(facts, shown, reads):
        return pooled(times, metric)
    query = _cells_query(facts, times, metric, shown, _compared(reads, facts, times.stage, metric, shown))
    return _cells(reads.ask(facts.summary, query), query, facts)


def _exposed(reads: Reads, facts: RunFacts, stage: Stage, steps: Ints) -> StageTimes:
    ns = exposed_ns(reads, facts, stage, steps)
    step_ns = facts.steps.duration_ns[np.searchsorted(facts.steps.step, steps)]
    return StageTimes(stage=stage, steps=steps, ns=ns, ratio=np.full_like(ns, np.nan), step_ns=step_ns, basis=WALL)


def _shown(facts: RunFacts, steps: StepRange) -> Ints:
    return facts.steps.step[(facts.steps.step >= steps.first) & (facts.steps.step <= steps.last)]


def _is_large(facts: RunFacts, steps: Ints, reads: Reads) -> bool:
    return len(steps) * facts.topology.world_size > reads.max_cells


def _compared(reads: Reads, facts: RunFacts, stage: Stage, metric: Metric, steps: Ints) -> Compared:
    """For waiting times: the members of the collective. Otherwise the ranks that do the same work."""
    if metric is not Metric.WAIT or stage not in GROUP_STAGES:
        return Compared(peers="pipeline_rank")
    axis = group_axis(stage)
    usual = (
        Compared(peers=GROUPS[axis]) if axis else Compared(peers="axes_group", mask=usual_mask(stage, facts.topology))
    )
    if not len(steps):
        return usual
    if stage is Stage.PARAMS_ALL_GATHER and _gathers_inside(reads, facts, int(steps[-1])):
        return NOBODY
    num_axes = sum(degree > 1 for name, degree in facts.topology.mesh if name not in ("pp", "tp"))
    if axis == "tp" or (axis == "dp" and num_axes <= 1):
        return usual
    query = StageGroups(**facts.summary.key, stage=int(stage), first_step=int(steps[0]), last_step=int(steps[-1]))
    return compared_in(reads.ask(facts.summary, query), usual, facts.topology)


def compared_in(table: pa.Table, usual: Compared, grid: Topology) -> Compared:
    """The members of the groups in an answer to ``StageGroups``. ``usual`` if no group was recorded.

    If the groups lie along different axes, no rank is compared: a sum over a step does not show in which group a rank
    was late.
    """
    peers = resolved_peers(ints(table, "peer"), grid)
    masks = {grid.known_mask(int(mask)) for mask in masks_of_peers(peers)} - {0}
    if not masks:
        return usual
    return Compared(peers="axes_group", mask=masks.pop()) if len(masks) == 1 else NOBODY


def _gathers_inside(reads: Reads, facts: RunFacts, step: int) -> bool:
    """Whether parameters are gathered inside compute spans, on rank 0 in this step.

    A prefetched gather runs beside compute. Its duration shows how far ahead a rank is, not how long it waited
    (``diagnose/model/gathers.py``).
    """
    stages = tuple(int(stage) for stage in (*WORK_STAGES, Stage.PARAMS_ALL_GATHER))
    query = Spans(**facts.summary.key, first_step=step, last_step=step, ranks=(0,), stages=stages)
    table = reads.ask(facts.summary, query)
    start = ints(table, "start_ns")
    computes = ints(table, "stage") != Stage.PARAMS_ALL_GATHER
    begin, end = start[computes], (start + ints(table, "duration_ns"))[computes]
    gathers = start[~computes, None]
    return int(((begin <= gathers) & (gathers < end)).any(axis=1).sum()) >= LEAST_GATHERS


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
        ratio=_ratio(ns, facts, among),
        step_ns=np.array([facts.steps.mean_ns(first, last + 1)]),
        basis=PROCESSOR if uses_cpu else WALL,
        num_steps=len(steps),
    )


def _by_step(reads: Reads, facts: RunFacts, stage: Stage, clock: Clock, steps: Ints, among: Compared) -> StageTimes:
    ns, basis = _compute_time(reads, facts, stage, steps) if clock is Clock.OWN else (None, WALL)
    if ns is None:
        ns, basis = _totals(reads, facts, stage, clock, steps)
    step_ns = facts.steps.duration_ns[np.searchsorted(facts.steps.step, steps)]
    ratio = _ratio(ns, facts, among)
    return StageTimes(stage=stage, steps=steps, ns=ns, ratio=ratio, step_ns=step_ns, basis=basis)


def _compute_time(reads: Reads, facts: RunFacts, stage: Stage, steps: Ints) -> tuple[Floats | None, str]:
    """The compute time that the detectors use, so that picture and findings agree. None if it is not available."""
    num_operations = facts.num_spans * len(steps) / max(1, len(facts.steps.step))
    if stage not in COMPUTE_STAGES or not 0 < num_operations <= reads.max_own_operations:
        return None, WALL
    run, window = facts.summary, StepWindow(first_step=int(steps[0]), last_step=int(steps[-1]))
    newest = reads.reports.newest_view(run)
    if newest is not None and np.isin(steps, newest.steps).all():
        return _work_of(newest, stage, steps)

    def load(reader: Reader) -> tuple[Floats | None, str]:
        return _work_of(load_view(reader, run.run_id, run.attempt, window), stage, steps)

    return reads.compute(run, ("own-work", stage, window), load)


def _work_of(view: RunView, stage: Stage, steps: Ints) -> tuple[Floats | None, str]:
    """Shape [steps, ranks], and the basis. None if the view lacks one of the steps."""
    work, rows = view.work.get(stage), np.isin(view.steps, steps)
    if work is None or rows.sum() != len(steps):
        return None, WALL
    return work.ns[rows], PROCESSOR if work.basis is Basis.PROCESSOR_TIME else str(work.basis)


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


def _ratio(ns: Floats, facts: RunFacts, among: Compared) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(ns / peer_median(ns, _group_of_rank(among, facts.topology, facts.role_numbers)))


def _group_of_rank(among: Compared, grid: Topology, role_numbers: tuple[int, ...] = ()) -> Ints:
    """A number for each rank, shape [ranks]. Ranks with the same number are peers: they also have the same role."""
    group = _group_in_mesh(among, grid)
    return group + grid.world_size * np.array(role_numbers) if role_numbers else group


def _group_in_mesh(among: Compared, grid: Topology) -> Ints:
    if among.peers == "axes_group":
        number = np.empty(grid.world_size, dtype=np.int64)
        members = grid.members(among.mask)
        number[members] = members[:, :1]
        return number
    dp, pp, tp = (grid.index[axis] for axis in AXES)
    groups = {"dp_group": pp * grid.tp + tp, "tp_group": dp * grid.pp + pp}
    return groups.get(among.peers, pp)


def _cells_query(facts: RunFacts, times: StageTimes, metric: Metric, steps: Ints, among: Compared) -> HeatCells:
    grid, run = facts.topology, facts.summary
    axes = [(degree, grid.stride(name)) for name, degree in grid.mesh if name in grid.axes_of(among.mask)]
    return HeatCells(
        **run.key,
        stage=int(times.stage),
        first_step=int(steps[0]),
        last_step=int(steps[-1]),
        num_ranks=grid.world_size,
        max_rows=-(-grid.world_size // ranks_a_row(grid.world_size)),
        max_columns=max_columns(grid.world_size),
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
    )


def _cells(table: pa.Table, query: HeatCells, facts: RunFacts) -> PooledTimes:
    columns, column = np.unique(ints(table, "step"), return_inverse=True)
    depth = query.ranks_a_row
    shape = len(columns), -(-query.num_ranks // depth)
    row = ints(table, "rank") // depth
    known = row < shape[1]
    place = column[known], row[known]
    ns, ratio = np.full(shape, np.nan), np.full(shape, np.nan)
    worst = np.tile(np.arange(shape[1]) * depth, (shape[0], 1))
    ns[place], ratio[place] = floats(table, "mean_ns")[known], floats(table, "ratio")[known]
    worst[place] = ints(table, "hottest_rank")[known]
    first = np.maximum(columns, query.first_step)
    end = np.minimum(columns + query.steps_a_column, query.last_step + 1)
    return PooledTimes(
        steps=first,
        steps_a_column=query.steps_a_column,
        ranks_a_row=depth,
        over_steps="mean",
        ns=ns,
        ratio=ratio,
        step_ns=np.array([facts.steps.mean_ns(*column) for column in zip(first, end, strict=True)]),
        worst=worst,
    )
