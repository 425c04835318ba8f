"""The stage times of a heat map, from sums by rank and step, and which of them are queried.

ranks x steps <= MAX_CELLS   each step by itself: sums of the store; compute time as the detectors use it, where
                             that takes at most MAX_OWN_OPERATIONS
              more           each rank's mean over all steps, and a picture that the store has pooled: HeatCells
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from diagnose.model.collectives import met_along
from diagnose.model.compute_time import WORK_STAGES
from diagnose.model.gathers import LEAST_GATHERS
from diagnose.model.peers import peer_median
from telemetry.group_names import masks_of_peers, resolved_peers
from telemetry.stages import Stage, StageClass
from telemetry.stores.queries import HeatCells, RankStageMeans, Spans, StageGroups
from telemetry.stores.queries.heat_map import Peers
from telemetry.topology import AXES, Axis, Topology
from ui.dashboard.columns import by_step_and_rank, floats, ints
from ui.dashboard.figures.pooling import max_columns, ranks_a_row
from ui.dashboard.records import Floats, Ints, PooledTimes, RunFacts, StageTimes
from ui.dashboard.view_state import Clock, Metric

WALL = "wall time, including waiting for other ranks"
PROCESSOR = "processor time"
MAX_CELLS = 240_000
"""Ranks times steps that are asked for one by one."""
MAX_OWN_OPERATIONS = 1_000_000
"""Operations that are loaded to show own work as detectors see it."""
WORST: dict[Metric, Literal["ratio", "mean_ns", "lead_ns"]] = {
    Metric.RATIO: "ratio",
    Metric.MILLISECONDS: "mean_ns",
    Metric.SHARE: "mean_ns",
    Metric.WAIT: "lead_ns",
}
"""What the worst rank of a cell has most of."""
GROUPS: dict[Axis, Peers] = {"dp": "dp_group", "tp": "tp_group"}
"""Axis along which a collective's members lie -> they as peers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Who is compared with whom."""

    peers: Peers
    mask: int = 0
    """The axes of an ``axes_group``; 0: nobody is compared."""


SAME_WORK = Compared(peers="pipeline_rank")
NOBODY = Compared(peers="axes_group")


def compared(stage: Stage, metric: Metric) -> Compared:
    """For waiting those who wait for each other along a direction of the grid, else those that do the same work."""
    axis = met_along(stage) if metric is Metric.WAIT else None
    return SAME_WORK if axis is None else Compared(peers=GROUPS[axis])


def may_meet_along_fewer_axes(stage: Stage, metric: Metric, grid: Topology) -> bool:
    """Whether :func:`compared` holds only where the groups of the stage lie along all axes of the replicas."""
    num_axes = sum(degree > 1 for name, degree in grid.mesh if name not in ("pp", "tp"))
    return num_axes > 1 and compared(stage, metric).peers == "dp_group"


def groups_query(facts: RunFacts, stage: Stage, steps: Ints) -> StageGroups:
    """The axes along which the stage was recorded."""
    run = facts.summary
    return StageGroups(
        run_id=run.run_id, attempt=run.attempt, stage=int(stage), first_step=int(steps[0]), last_step=int(steps[-1])
    )


def compared_in(table: pa.Table, usual: Compared, grid: Topology) -> Compared:
    """The answer to :func:`groups_query`: the members of the recorded groups. Nobody is compared where these lie along
    different axes: a sum over a step does not show for which group a rank came late."""
    peers = resolved_peers(ints(table, "peer"), grid)
    masks = {grid.known_mask(int(mask)) for mask in masks_of_peers(peers)} - {0}
    if not masks:
        return usual
    return Compared(peers="axes_group", mask=masks.pop()) if len(masks) == 1 else NOBODY


def layers_query(facts: RunFacts, steps: Ints) -> Spans:
    """Computes and gathers of parameters of one rank in the newest of ``steps``."""
    run, step = facts.summary, int(steps[-1])
    stages = tuple(int(stage) for stage in (*WORK_STAGES, Stage.PARAMS_ALL_GATHER))
    return Spans(run_id=run.run_id, attempt=run.attempt, first_step=step, last_step=step, ranks=(0,), stages=stages)


def gathers_inside(table: pa.Table) -> bool:
    """The answer to :func:`layers_query`: whether the parameters of layers are gathered inside computes.

    Such gathers run beside work where they are prefetched. Their duration then shows how far ahead a rank is, not how
    long it stood still (``diagnose/model/gathers.py``).
    """
    stage, start = ints(table, "stage"), ints(table, "start_ns")
    computes = stage != Stage.PARAMS_ALL_GATHER
    begin, end = start[computes], (start + ints(table, "duration_ns"))[computes]
    gathers = start[~computes, None]
    return int(((begin <= gathers) & (gathers < end)).any(axis=1).sum()) >= LEAST_GATHERS


def means_query(facts: RunFacts, stage: Stage, steps: Ints) -> RankStageMeans:
    """Every rank over all ``steps``."""
    run = facts.summary
    return RankStageMeans(
        run_id=run.run_id,
        attempt=run.attempt,
        first_step=int(steps[0]),
        last_step=int(steps[-1]),
        stages=(int(stage),),
    )


def means(table: pa.Table, stage: Stage, clock: Clock, steps: Ints, facts: RunFacts, among: Compared) -> StageTimes:
    """The answer to :func:`means_query`: one row."""
    cpu, rank = floats(table, "mean_cpu_ns"), ints(table, "rank")
    own = _is_own(stage, clock, cpu)
    known = rank < facts.topology.world_size
    ns = np.full((1, facts.topology.world_size), np.nan)
    ns[0, rank[known]] = (cpu if own else floats(table, "mean_ns"))[known]
    step_ns = np.array([facts.steps.mean_ns(int(steps[0]), int(steps[-1]) + 1)])
    basis = PROCESSOR if own else WALL
    return _times(stage, steps[:1], ns, step_ns, basis, facts, among, num_steps=len(steps))


def cells_query(facts: RunFacts, times: StageTimes, metric: Metric, steps: Ints, among: Compared) -> HeatCells:
    """Rank by step, in as few cells as fit."""
    grid, run = facts.topology, facts.summary
    axes = [(degree, grid.stride(name)) for name, degree in grid.mesh if name in grid.axes_of(among.mask)]
    return HeatCells(
        run_id=run.run_id,
        attempt=run.attempt,
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
    )


def cells(table: pa.Table, query: HeatCells, facts: RunFacts) -> PooledTimes:
    """The answer to :func:`cells_query`."""
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
        step_ns=np.array([facts.steps.mean_ns(*one) for one in zip(first, end, strict=True)]),
        worst=worst,
    )


def summed(table: pa.Table, stage: Stage, clock: Clock, steps: Ints, num_ranks: int) -> tuple[Floats, str]:
    """The answer to ``StageTotals`` by step and rank, and what it is of."""
    cpu = floats(table, "cpu_ns")
    own = _is_own(stage, clock, cpu)
    value = cpu if own else floats(table, "duration_ns")
    return by_step_and_rank(table, value, steps, num_ranks), PROCESSOR if own else WALL


def step_by_step(stage: Stage, steps: Ints, ns: Floats, basis: str, facts: RunFacts, among: Compared) -> StageTimes:
    """``ns`` [steps, ranks] beside its ratio to the peers'."""
    step_ns = facts.steps.duration_ns[np.searchsorted(facts.steps.step, steps)]
    return _times(stage, steps, ns, step_ns, basis, facts, among, num_steps=1)


def _times(
    stage: Stage,
    steps: Ints,
    ns: Floats,
    step_ns: Floats,
    basis: str,
    facts: RunFacts,
    among: Compared,
    *,
    num_steps: int,
) -> StageTimes:
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = ns / peer_median(ns, _group_of_rank(among, facts.topology))
    return StageTimes(stage=stage, steps=steps, ns=ns, ratio=ratio, step_ns=step_ns, basis=basis, num_steps=num_steps)


def _group_of_rank(among: Compared, grid: Topology) -> Ints:
    """Ranks of equal number are peers; shape [ranks]."""
    if among.peers == "axes_group":
        number = np.empty(grid.world_size, dtype=np.int64)
        members = grid.members(among.mask)
        number[members] = members[:, :1]
        return number
    dp, pp, tp = (grid.index[axis] for axis in AXES)
    groups = {"dp_group": pp * grid.tp + tp, "tp_group": dp * grid.pp + pp}
    return groups.get(among.peers, pp)


def _is_own(stage: Stage, clock: Clock, cpu_ns: Floats) -> bool:
    """Processor time is shown where it is asked for, means something, and was measured everywhere."""
    return clock is Clock.OWN and stage.stage_class is StageClass.COMPUTE and bool(len(cpu_ns) and (cpu_ns >= 0).all())
