"""How late each replica starts its data-parallel collectives, above what its compute time explains.

    dp0   |forward|backward|---- reduce-scatter ----|     late(dp1) = how much later it starts than the median of the
    dp1   .....|forward|backward|--- reduce-scatter-|                 others. All end together: durations are enough.
                                                          explained = how much longer its ranks compute or load

Ranks of a replica delay each other: a tensor group by its collectives, a pipeline by its transfers. So lateness is
measured for the replica. ``late_origin`` finds the rank that causes it.
"""

from dataclasses import dataclass

import numpy as np

from diagnose.model.collectives import DP_STAGES, Collectives, group_collectives, starts_late_ns
from diagnose.model.operations import Floats
from diagnose.model.peers import median_of_others
from diagnose.model.view import Basis, RunView, Work
from telemetry.stages import Stage
from telemetry.topology import Topology

EXPLAINED_BY = (Stage.DATA_LOAD, Stage.CHECKPOINT_SNAPSHOT, Stage.CHECKPOINT_WRITE, Stage.EVALUATION)
"""Stages that make a rank late without a late launch. Other detectors report them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offsets:
    """How late ranks and replicas start their collectives, in nanoseconds. NaN if a collective is incomplete."""

    rank_late_ns: Floats
    """Largest lateness of a rank in the collectives of a step, [steps, ranks]. Negative: early."""
    replica_late_ns: Floats
    """Lateness of the latest rank of each replica, above that of a typical replica, [steps, dp]."""
    explained_ns: Floats
    """Lateness that compute and loading explain, [steps, dp]."""
    behind_ns: Floats
    """Time from the first start in a group to the start of each replica's latest rank, [steps, dp]. Unlike lateness, it
    shows the true time between two replicas."""
    gc_ns: Floats
    """Garbage collection of a rank above that of its peers, [steps, ranks]."""
    own_ratio: Floats
    """Work of a rank divided by that of its peers, median over steps, [ranks]."""
    stage: Stage
    """The collective with the most lateness."""

    @property
    def unexplained_ns(self) -> Floats:
        """Lateness of a replica that compute and loading do not explain, [steps, dp]."""
        return np.asarray(self.replica_late_ns - self.explained_ns)


def launch_offsets(view: RunView) -> Offsets | None:
    """The launch offsets along dp. NaN in a step in which the work of a rank is unknown.

    None without peers, collectives along dp, or compute time.
    """
    stages = [stage for stage in (*DP_STAGES, Stage.OPTIMIZER_CLIP) if stage in view.operations]
    if view.topology.dp < 2 or not view.work or not stages:
        return None
    every = [
        collectives
        for stage in stages
        for collectives in group_collectives(stage, view.operations[stage], view.topology)
    ]
    if not every:
        return None
    late = [_latest(collectives, starts_late_ns(collectives)) for collectives in every]
    rank_late = np.fmax.reduce(late)
    behind = np.fmax.reduce([_latest(collectives, _after_first_ns(collectives)) for collectives in every])
    own, gc = _own_ns(view), _gc_ns(view)
    excess = _over_peers(own, view)
    replicas = np.asarray(np.fmax.reduce(_replicas(rank_late, view.topology), axis=2))
    return Offsets(
        rank_late_ns=rank_late,
        replica_late_ns=replicas - median_of_others(np.maximum(replicas, 0.0)),
        explained_ns=_explained_ns(excess - gc, view),
        behind_ns=np.asarray(np.fmax.reduce(_replicas(behind, view.topology), axis=2)),
        gc_ns=gc,
        own_ratio=_median_ratio(own, excess),
        stage=every[int(np.argmax([np.nansum(np.maximum(late_ns, 0.0)) for late_ns in late]))].stage,
    )


def _latest(collectives: Collectives, late: Floats) -> Floats:
    """The largest lateness of each rank in a step, [steps, ranks], from [steps, occurrences, groups, members]."""
    found = np.empty((len(late), collectives.ranks.size))
    found[:, collectives.ranks] = np.fmax.reduce(late, axis=1)
    return found


def _after_first_ns(collectives: Collectives) -> Floats:
    """Time from the start of the first member to that of each member. All members end together, so the first member has
    the longest duration."""
    return np.asarray(collectives.duration_ns.max(axis=3, keepdims=True) - collectives.duration_ns)


def _over_peers(values: Floats, view: RunView) -> Floats:
    """Value of each rank minus the median of its data-parallel peers, [steps, ranks]. NaN if one of them has none."""
    topology = view.topology
    grid = _replicas(values, topology).swapaxes(1, 2)
    excess = (grid - median_of_others(grid)).swapaxes(1, 2)
    return np.asarray(topology.by_rank(excess.reshape(len(values), *topology.grid.shape)))


def _replicas(values: Floats, topology: Topology) -> Floats:
    """Rearrange [steps, ranks] to [steps, dp, ranks of a replica]."""
    return topology.arranged(values).reshape(len(values), topology.dp, -1)


def _own_ns(view: RunView) -> Floats:
    """Own time of each rank: compute on and off the core, loading, checkpoints; [steps, ranks]."""
    own: Floats = np.sum([_wall_ns(view, stage, work) for stage, work in view.work.items()], axis=0)
    for stage in EXPLAINED_BY:
        if stage in view.operations:
            own = own + np.nan_to_num(view.operations[stage].total_ns(), nan=0.0)
    return own


def _wall_ns(view: RunView, stage: Stage, work: Work) -> Floats:
    """Own time in a compute stage, with the time off the core: it makes a rank late without a late launch."""
    if work.basis is not Basis.PROCESSOR_TIME:
        return work.ns
    if stage in view.off_cpu:
        return work.ns + np.nan_to_num(view.alone_off_cpu(stage), nan=0.0)
    return view.operations[stage].total_ns() if stage in view.operations else work.ns


def _gc_ns(view: RunView) -> Floats:
    """Garbage collection above that of a rank's peers. A planned collection on all ranks does not count."""
    if Stage.GC not in view.operations:
        return np.zeros((len(view.steps), view.topology.world_size))
    return np.maximum(_over_peers(np.nan_to_num(view.operations[Stage.GC].total_ns(), nan=0.0), view), 0.0)


def _explained_ns(excess_ns: Floats, view: RunView) -> Floats:
    """How much compute and loading may delay a replica, [steps, dp]: the larger of two estimates.

    These are the excess of its slowest rank in that step, and the usual excess of all its pipeline ranks.
    """
    topology = view.topology
    grid = topology.arranged(np.maximum(excess_ns, 0.0))
    whole = ~np.isnan(excess_ns).any(axis=1)
    typical = np.median(excess_ns[whole], axis=0) if whole.any() else np.zeros(excess_ns.shape[1])
    lasting = topology.arranged(np.maximum(typical, 0.0))
    return np.asarray(np.maximum(grid.max(axis=(2, 3)), lasting.max(axis=2).sum(axis=1)))


def _median_ratio(own: Floats, excess: Floats) -> Floats:
    expected = own - excess
    known = (expected > 0) & np.isfinite(own)
    ratio = np.where(known, own, 1.0) / np.where(known, expected, 1.0)
    return np.asarray(np.median(ratio, axis=0))
