"""The rank that causes the lateness of a replica, where spans show it, and replicas that are persistently late.

rank 4   |recv|forward|......gap......|backward|      the only one that did nothing for as long as all are late
rank 5   |recv|forward|    |-----recv-----|           its neighbours wait inside a receive or a collective

A replica is persistently late if it is late step after step, by more than replicas differ among each other.

late, share of the step   dp0   .-._.-.._.'     fluctuates around zero
                          dp1   .-._''''''''    late from a step on
"""

from dataclasses import dataclass

import numpy as np

from diagnose.detectors.evidence import MIN_STEPS
from diagnose.detectors.launch_offsets import Offsets
from diagnose.model.collectives import Floats, Ints, least_excess, noise_between_steps
from diagnose.model.operations import Operations
from diagnose.model.peers import FloatVector, Stretch, highest_stretch, measure_excess, robust_sigma
from diagnose.model.view import RunView
from telemetry.stages import StageClass

MIN_PART = 0.5
"""Of the lateness: what an origin must show of it by itself."""
MAX_OWN_RATIO = 1.05
"""A rank with more work than this over its peers' is no late launcher."""
REFERENCES = 4
"""Replicas that a late one is compared with."""
MOST_ROWS = 40


def origin_of(replica: int, stretch: Stretch, offsets: Offsets, view: RunView) -> int | None:
    """The rank that was late by itself: the only one with collections of garbage in late steps, else the only late
    one, else the only one with a gap between its spans. None where there are several such, or none."""
    ranks = members(replica, view)
    late = offsets.unexplained_ns[stretch.rows, replica]
    for shown in (offsets.gc_ns[stretch.rows][:, ranks], offsets.rank_late_ns[stretch.rows][:, ranks]):
        alone = _only(shown, late)
        if alone is not None:
            return _unless_working(int(ranks[alone]), offsets)
    alone = _only(_gap_over_others(replica, stretch, offsets, view), late, rows=_some_rows(stretch) - stretch.first)
    return None if alone is None else _unless_working(int(ranks[alone]), offsets)


def members(replica: int, view: RunView) -> Ints:
    """Ranks of a data-parallel replica."""
    return np.asarray(view.topology.grid[replica].ravel())


def _only(shown_ns: Floats, late_ns: Floats, rows: Ints | None = None) -> int | None:
    """The one column that shows the lateness in most rows, if there is one."""
    late_ns = late_ns if rows is None else late_ns[rows]
    known = late_ns > 0
    if not known.any():
        return None
    share = (shown_ns[known] >= MIN_PART * late_ns[known, None]).mean(axis=0)
    found = np.flatnonzero(share > 0.5)
    return int(found[0]) if len(found) == 1 else None


def _unless_working(rank: int, offsets: Offsets) -> int | None:
    return rank if offsets.own_ratio[rank] < MAX_OWN_RATIO else None


def _some_rows(stretch: Stretch) -> Ints:
    """At most so many rows, evenly over the stretch."""
    count = min(stretch.length, MOST_ROWS)
    return np.unique(np.linspace(stretch.first, stretch.last, count).astype(np.int64))


def _gap_over_others(replica: int, stretch: Stretch, offsets: Offsets, view: RunView) -> Floats:
    """Idle time of each rank beyond that of its peers in a few other replicas, [rows, ranks of the replica]."""
    level = np.nan_to_num(np.nanmedian(offsets.unexplained_ns[stretch.rows], axis=0), nan=np.inf)
    level[replica] = np.inf
    others = np.argsort(level, kind="stable")[: min(REFERENCES, view.topology.dp - 1)]
    rows = _some_rows(stretch)
    idle = np.stack([_idle_ns(members(int(one), view), rows, view) for one in (replica, *others)])
    return np.asarray(idle[0] - np.median(idle[1:], axis=0))


def _idle_ns(ranks: Ints, rows: Ints, view: RunView) -> Floats:
    """Time in a step, from the end of the step before, in which a rank was in no span; [rows, ranks].

    Stamps of one rank only are compared with each other, and of one clock.
    """
    everything = _of_one_clock(view)
    begin, end = (
        np.concatenate([part[at] for part in (_part(one, ranks, rows) for one in everything)], axis=1) for at in (0, 1)
    )
    order = np.argsort(begin, axis=1)
    begin, end = np.take_along_axis(begin, order, axis=1), np.take_along_axis(end, order, axis=1)
    reached = np.maximum.accumulate(end, axis=1)
    gaps = np.nan_to_num(begin[:, 1:] - reached[:, :-1], nan=0.0, posinf=0.0, neginf=0.0)
    idle = np.maximum(gaps, 0.0).sum(axis=1)
    return np.asarray(idle + _lead_ns(ranks, rows, begin[:, 0], view))


def _of_one_clock(view: RunView) -> list[Operations]:
    """Everything, or, where a device measured, what it did: the host runs ahead of it."""
    if not view.on_device:
        return list(view.operations.values())
    device = (StageClass.COMPUTE, StageClass.COMMUNICATION)
    return [one for stage, one in view.operations.items() if stage.stage_class in device]


def _part(one: Operations, ranks: Ints, rows: Ints) -> tuple[Floats, Floats]:
    """Begins and ends, [rows, occurrences, ranks], to a quarter of a microsecond; absent ones begin at infinity."""
    begin, duration = one.start_ns[rows][:, :, ranks], one.duration_ns[rows][:, :, ranks]
    present = duration >= 0
    return (
        np.where(present, begin, np.inf).astype(np.float64),
        np.where(present, begin + duration, -np.inf).astype(np.float64),
    )


def _lead_ns(ranks: Ints, rows: Ints, first: Floats, view: RunView) -> Floats:
    """From the end of the step before to the first span; 0 where that step is not in the window."""
    before = np.maximum(rows - 1, 0)
    ends = [_part(one, ranks, before)[1].max(axis=1) for one in _of_one_clock(view)]
    lead = first - np.max(ends, axis=0)
    follows = (rows > 0) & (view.steps[rows] == view.steps[before] + 1)
    return np.where(follows[:, None] & np.isfinite(lead), np.maximum(lead, 0.0), 0.0)


MIN_COST = 0.03
"""Of step time; below it nothing is said."""
MIN_SHARE = 0.7
MIN_Z = 6.0
MIN_SPREADS = 5.0
NOISE_FLOOR = 0.002
UPPER_QUARTILE_TO_SIGMA = 0.6745
"""Distance of the upper quartile from the median, in standard deviations of a normal distribution."""
GC_PART = 0.3
"""Of the lateness, that a collection must last to be its cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LateReplica:
    """A replica that comes late persistently."""

    replica: int
    origin: int | None
    """The rank that it comes from, if that is known."""
    stretch: Stretch
    share: float
    late_ns: float
    """Median over the stretch."""
    cost: float
    """Share of step time for which nobody but it is waited for."""
    num_with_gc: int
    """Steps with a collection of garbage that may explain it."""


def late_replicas(late: Floats, offsets: Offsets, view: RunView) -> list[LateReplica]:
    """Those that cost enough. ``late`` is unexplained lateness as a share of step time, [steps, dp]."""
    noise = noise_between_steps(late, NOISE_FLOOR)
    candidates = np.flatnonzero((late >= MIN_COST).sum(axis=0) >= MIN_STEPS // 2).tolist()
    found = {one: stretch for one in candidates if (stretch := _late_stretch(one, late, noise)) is not None}
    raw = offsets.replica_late_ns / view.step_ns[:, None]
    alone = np.minimum(_beyond_others(late, list(found)), _beyond_others(raw, list(found)))
    costs = {one: float(np.nanmedian(alone[stretch.rows, one])) for one, stretch in found.items()}
    return [_measured(one, found[one], cost, late, offsets, view) for one, cost in costs.items() if cost >= MIN_COST]


def _late_stretch(replica: int, late: Floats, noise: float) -> Stretch | None:
    stretch = highest_stretch(late[:, replica] - MIN_COST / 2)
    excess = measure_excess(late[stretch.rows, replica], above=MIN_COST / 2, noise=noise)
    if not excess.persists(MIN_STEPS) or excess.median < MIN_COST or excess.share < MIN_SHARE or excess.z < MIN_Z:
        return None
    restless = noise_between_steps(late[stretch.rows], NOISE_FLOOR)  # all may be, for a while
    if excess.median < least_excess(MIN_Z, restless, excess.num_rows):
        return None
    others = np.delete(late[stretch.rows], replica, axis=1)
    if others.shape[1] == 1:  # the mirror image
        return stretch
    return stretch if excess.median >= MIN_SPREADS * _spread(np.nanmedian(others, axis=0)) else None


def _spread(medians: FloatVector) -> float:
    """How far apart replicas lie that nobody suspects, as a standard deviation. Who is early lies at zero with all the
    others that are, so the upper half alone tells."""
    upper = float(np.quantile(medians, 0.75) - np.median(medians)) / UPPER_QUARTILE_TO_SIGMA
    return max(upper, robust_sigma(medians, NOISE_FLOOR))


def _beyond_others(late: Floats, replicas: list[int]) -> Floats:
    """By how much each column exceeds the latest of those not among ``replicas``."""
    others = np.delete(late, replicas, axis=1)
    latest: FloatVector = np.maximum(others.max(axis=1), 0.0) if others.shape[1] else np.zeros(len(late))
    return late - latest[:, None]


def _measured(
    replica: int, stretch: Stretch, cost: float, late: Floats, offsets: Offsets, view: RunView
) -> LateReplica:
    late_ns = offsets.unexplained_ns[stretch.rows, replica]
    gc_ns = offsets.gc_ns[stretch.rows][:, members(replica, view)].max(axis=1)
    return LateReplica(
        replica=replica,
        origin=origin_of(replica, stretch, offsets, view),
        stretch=stretch,
        share=float(np.mean(late[stretch.rows, replica] > MIN_COST / 2)),
        late_ns=float(np.nanmedian(late_ns)),
        cost=cost,
        num_with_gc=int(((gc_ns > 0) & (gc_ns >= GC_PART * np.nan_to_num(late_ns, nan=np.inf))).sum()),
    )
