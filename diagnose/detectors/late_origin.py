"""Replicas that are persistently late, and the rank that causes the lateness.

    late, share of the step   dp0   .-._.-.._.'     varies around zero
                              dp1   .-._''''''''    late from a step on

A replica is persistently late if it is late in step after step, by more than the replicas differ among each other.

    rank 4   |recv|forward|......gap......|backward|      the only rank that was idle for as long as all are late
    rank 5   |recv|forward|    |-----recv-----|           its neighbours wait in a receive or a collective
"""

from dataclasses import dataclass

import numpy as np

from diagnose.detectors.evidence import MIN_STEPS
from diagnose.detectors.launch_offsets import Offsets
from diagnose.model.operations import Floats, Ints, Operations
from diagnose.model.peers import Bar, Stretch, noise_between_steps, persistent_excess, robust_sigma
from diagnose.model.view import RunView
from telemetry.stages import StageClass

MIN_PART = 0.5
"""Share of the lateness that an origin must show."""
MAX_OWN_RATIO = 1.05
"""Ratio of work to that of peers. A rank with more work does not launch late: it computes longer."""
REFERENCES = 4
"""Number of replicas that a late one is compared with."""
MOST_ROWS = 40
MIN_COST = 0.03
"""Share of step time. A smaller cost is not reported."""
NOISE_FLOOR = 0.002
BAR = Bar(level=MIN_COST, share=0.7, z=6.0, num_steps=MIN_STEPS, noise_floor=NOISE_FLOOR)
MIN_SPREADS = 5.0
UPPER_QUARTILE_TO_SIGMA = 0.6745
"""Distance of the upper quartile from the median, in standard deviations of a normal distribution."""
GC_PART = 0.3
"""Share of the lateness that a garbage collection must last to be its cause."""


def origin_of(replica: int, stretch: Stretch, offsets: Offsets, view: RunView) -> int | None:
    """The rank that was late by itself, or None if there is no such rank or more than one.

    It is the only rank with garbage collection in late steps, or the only late rank, or the only rank with a gap
    between its spans.
    """
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
    """The only column that shows the lateness in most rows, if there is one."""
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
    """At most ``MOST_ROWS`` rows, evenly over the stretch."""
    count = min(stretch.length, MOST_ROWS)
    return np.unique(np.linspace(stretch.first, stretch.last, count).astype(np.int64))


def _gap_over_others(replica: int, stretch: Stretch, offsets: Offsets, view: RunView) -> Floats:
    """Idle time of each rank above that of its peers in a few other replicas, [rows, ranks of the replica]."""
    level = np.nan_to_num(np.nanmedian(offsets.unexplained_ns[stretch.rows], axis=0), nan=np.inf)
    level[replica] = np.inf
    others = np.argsort(level, kind="stable")[: min(REFERENCES, view.topology.dp - 1)]
    rows = _some_rows(stretch)
    idle = np.stack([_idle_ns(members(int(each), view), rows, view) for each in (replica, *others)])
    return np.asarray(idle[0] - np.median(idle[1:], axis=0))


def _idle_ns(ranks: Ints, rows: Ints, view: RunView) -> Floats:
    """Time from the end of the step before in which a rank was in no span, [rows, ranks].

    Only times of one rank and of one clock are compared.
    """
    parts = [_begins_and_ends(operations, ranks, rows) for operations in _of_one_clock(view)]
    begin, end = (np.concatenate([part[at] for part in parts], axis=1) for at in (0, 1))
    order = np.argsort(begin, axis=1)
    begin, end = np.take_along_axis(begin, order, axis=1), np.take_along_axis(end, order, axis=1)
    reached = np.maximum.accumulate(end, axis=1)
    gaps = np.nan_to_num(begin[:, 1:] - reached[:, :-1], nan=0.0, posinf=0.0, neginf=0.0)
    idle = np.maximum(gaps, 0.0).sum(axis=1)
    return np.asarray(idle + _lead_ns(ranks, rows, begin[:, 0], view))


def _of_one_clock(view: RunView) -> list[Operations]:
    """The operations that one clock measured: those of the device if a device measured, because the host runs ahead.
    Otherwise all operations."""
    device = (StageClass.COMPUTE, StageClass.COMMUNICATION)
    return [
        operations for stage, operations in view.operations.items() if not view.on_device or stage.stage_class in device
    ]


def _begins_and_ends(operations: Operations, ranks: Ints, rows: Ints) -> tuple[Floats, Floats]:
    """Begins and ends, [rows, occurrences, ranks], to a quarter of a microsecond. Missing ones begin at infinity."""
    begin, duration = operations.start_ns[rows][:, :, ranks], operations.duration_ns[rows][:, :, ranks]
    present = duration >= 0
    return (
        np.where(present, begin, np.inf).astype(np.float64),
        np.where(present, begin + duration, -np.inf).astype(np.float64),
    )


def _lead_ns(ranks: Ints, rows: Ints, first: Floats, view: RunView) -> Floats:
    """Time from the end of the step before to the first span. 0 if that step is not in the window."""
    before = np.maximum(rows - 1, 0)
    ends = [_begins_and_ends(operations, ranks, before)[1].max(axis=1) for operations in _of_one_clock(view)]
    lead = first - np.max(ends, axis=0)
    follows = (rows > 0) & (view.steps[rows] == view.steps[before] + 1)
    return np.where(follows[:, None] & np.isfinite(lead), np.maximum(lead, 0.0), 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LateReplica:
    """A replica that is persistently late."""

    replica: int
    origin: int | None
    """The rank that causes the lateness, if it is known."""
    stretch: Stretch
    share: float
    late_ns: float
    """Lateness, median over the stretch."""
    cost: float
    """Share of step time in which all others wait for this replica only."""
    num_with_gc: int
    """Number of steps with a garbage collection that may explain it."""


def late_replicas(late: Floats, offsets: Offsets, view: RunView) -> list[LateReplica]:
    """Replicas that are persistently late and cost at least ``MIN_COST``.

    ``late``: unexplained lateness as share of step time, [steps, dp].
    """
    noise = noise_between_steps(late, NOISE_FLOOR)
    candidates = np.flatnonzero((late >= MIN_COST).sum(axis=0) >= MIN_STEPS // 2).tolist()
    found = {each: stretch for each in candidates if (stretch := _late_stretch(each, late, noise)) is not None}
    raw = offsets.replica_late_ns / view.step_ns[:, None]
    alone = np.minimum(_beyond_others(late, list(found)), _beyond_others(raw, list(found)))
    costs = {each: float(np.nanmedian(alone[stretch.rows, each])) for each, stretch in found.items()}
    return [_measured(each, found[each], cost, late, offsets, view) for each, cost in costs.items() if cost >= MIN_COST]


def _late_stretch(replica: int, late: Floats, noise: float) -> Stretch | None:
    if (high := persistent_excess(late, replica, BAR, noise)) is None:
        return None
    stretch, excess = high
    others = np.delete(late[stretch.rows], replica, axis=1)
    if others.shape[1] == 1:  # it mirrors the replica
        return stretch
    return stretch if excess.median >= MIN_SPREADS * _spread(np.nanmedian(others, axis=0)) else None


def _spread(medians: Floats) -> float:
    """Spread among replicas, as a standard deviation. Early replicas are all at zero, so the upper half is used."""
    upper = float(np.quantile(medians, 0.75) - np.median(medians)) / UPPER_QUARTILE_TO_SIGMA
    return max(upper, robust_sigma(medians, NOISE_FLOOR))


def _beyond_others(late: Floats, replicas: list[int]) -> Floats:
    """How much each column exceeds the latest column outside ``replicas``."""
    others = np.delete(late, replicas, axis=1)
    latest: Floats = np.maximum(others.max(axis=1), 0.0) if others.shape[1] else np.zeros(len(late))
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
