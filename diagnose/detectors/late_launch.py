"""late-launch: a rank starts its collectives late although its compute time is normal.

    one replica     dp0 |---|  dp0 |---|  dp0 |---|     dp1 is the last one in each step, and transfers are short:
                    dp1   |-|  dp1   |-|  dp1   |-|     one of its ranks launches late
    many replicas   dp0 |---|  dp0   |-|  dp0 |---|     Offsets vary in both directions: garbage collection in random
                    dp1   |-|  dp1 |---|  dp1   |-|     steps, or an offset that grows with the steps.

Source: MegaScale 6.3 (late launch by some rank, growing with steps; irregular garbage collection), What-if analysis
(planned collection: +12.6%). The thresholds are ours. Variation alone is not reported: on a busy machine all launches
vary. A finding needs garbage collection in the steps of late ranks, or growth.
"""

from dataclasses import dataclass

import numpy as np

from diagnose.detectors.evidence import MIN_STEPS, initiating, since, with_members
from diagnose.detectors.late_origin import (
    GC_PART,
    MAX_OWN_RATIO,
    MIN_COST,
    NOISE_FLOOR,
    LateReplica,
    late_replicas,
    members,
)
from diagnose.detectors.launch_offsets import Offsets, launch_offsets
from diagnose.findings import Finding, Kind, severity_of
from diagnose.model.operations import Bools, Floats
from diagnose.model.peers import robust_sigma
from diagnose.model.view import RunView
from diagnose.ranges import fold_ranks

NAME = "late-launch"
MIN_EVENTS = 3
"""Number of late launches with a garbage collection that a finding needs."""
GC_FLOOR = 0.002
"""Share of step time. Shorter garbage collections are ignored."""
ONE_RANK = 0.8
"""Share of the time lost by garbage collection that a named rank must have."""
GROWTH_STEPS = 20
GROWTH_Z = 4.5


@dataclass(frozen=True, slots=True, kw_only=True)
class _Collections:
    """Late launches with garbage collection on the late ranks."""

    num_late: int
    num_with_gc: int
    lost_share: float
    """Share of step time, mean over the window."""
    rank: int | None
    """The rank that lost at least ``ONE_RANK`` of this time, or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Growth:
    """Offsets that grow with the steps."""

    slope: float
    """Share of step time, per step."""
    first: float
    last: float
    """Largest offset of a step, as share of step time: median of the first and of the last third of the window."""


def detect_late_launch(view: RunView) -> list[Finding]:
    """One finding for each replica that is persistently late, otherwise one for the offsets of all replicas."""
    offsets = launch_offsets(view) if len(view.steps) >= MIN_STEPS else None
    if offsets is None or np.isnan(offsets.unexplained_ns).all():
        return []
    late = offsets.unexplained_ns / view.step_ns[:, None]
    late = np.where(np.isnan(late).any(axis=1, keepdims=True), np.nan, late)
    persistent = late_replicas(late, offsets, view)
    if persistent:
        return [_persistent(view, offsets, group) for group in _by_host(view, persistent)]
    collections = _collections(offsets, view)
    growth = _growth(late)
    if collections.lost_share < MIN_COST and growth is None:
        return []
    return [_varying(view, offsets, late, collections, growth)]


def _collections(offsets: Offsets, view: RunView) -> _Collections:
    """The garbage collections that explain late launches. A replica is late if it starts after the replicas without a
    collection."""
    step_ns = view.step_ns[:, None]
    gc = view.topology.arranged(offsets.gc_ns).reshape(*offsets.behind_ns.shape, -1)
    without_gc = gc.max(axis=2) < GC_FLOOR * step_ns
    late = (offsets.behind_ns - _usual_start(offsets.behind_ns, without_gc)) / step_ns
    late = np.nan_to_num(late - offsets.explained_ns / step_ns, nan=0.0)
    calm = late[without_gc.all(axis=1)]
    is_late = late > max(MIN_COST / 2, 5.0 * robust_sigma(calm.ravel(), NOISE_FLOOR))
    by_gc = is_late & (gc.max(axis=2) >= GC_PART * late * step_ns)
    rest = np.maximum(np.where(by_gc, 0.0, late).max(axis=1), 0.0)
    lost = np.maximum(np.where(by_gc, late, 0.0).max(axis=1) - rest, 0.0)
    of_rank = np.zeros(view.topology.world_size)
    step, replica = np.nonzero(by_gc)
    ranks = view.topology.grid.reshape(view.topology.dp, -1)
    np.add.at(of_rank, ranks[replica, gc[step, replica].argmax(axis=1)], late[step, replica])
    worst = int(of_rank.argmax())
    enough = len(step) >= MIN_EVENTS
    return _Collections(
        num_late=int(is_late.sum()),
        num_with_gc=len(step),
        lost_share=float(lost.mean()) if enough else 0.0,
        rank=worst if enough and of_rank[worst] >= ONE_RANK * of_rank.sum() else None,
    )


def _usual_start(behind_ns: Floats, without_gc: Bools) -> Floats:
    """Median of the replicas ``without_gc`` in each step, [steps, 1]. The earliest start if there is none."""
    count = without_gc.sum(axis=1, keepdims=True)
    ordered = np.sort(np.where(without_gc, behind_ns, np.inf), axis=1)
    middle = np.take_along_axis(ordered, np.maximum(count - 1, 0) // 2, axis=1)
    return np.where(count > 0, middle, behind_ns.min(axis=1, keepdims=True))


def _growth(late: Floats) -> _Growth | None:
    """How much the largest offset of each step grows with the steps. None if the growth is small or not certain."""
    largest = np.maximum(late.max(axis=1), 0.0)
    largest = largest[~np.isnan(largest)]
    count = len(largest)
    if count < GROWTH_STEPS:
        return None
    first, last = (float(np.median(part)) for part in (largest[: count // 3], largest[-(count // 3) :]))
    order = np.argsort(np.argsort(largest, kind="stable"), kind="stable")
    correlation = float(np.corrcoef(order, np.arange(count))[0, 1])
    if correlation * np.sqrt(count - 1) < GROWTH_Z or last - first < MIN_COST or last < 1.5 * first:
        return None
    return _Growth(slope=float(np.polyfit(np.arange(count), largest, 1)[0]), first=first, last=last)


def _by_host(view: RunView, late: list[LateReplica]) -> list[list[LateReplica]]:
    """Groups of late replicas: replicas whose origins are most ranks of a host, or a single replica."""
    hosts: dict[str, list[LateReplica]] = {}
    for replica in late:
        hosts.setdefault("" if replica.origin is None else view.hosts[replica.origin], []).append(replica)
    groups: list[list[LateReplica]] = []
    for host, of_host in hosts.items():
        whole = host and len(of_host) > 1 and 2 * len(of_host) > view.hosts.count(host)
        groups.extend([of_host] if whole else [[replica] for replica in of_host])
    return groups


def _persistent(view: RunView, offsets: Offsets, late: list[LateReplica]) -> Finding:
    worst = max(late, key=lambda replica: replica.cost)
    stretch = worst.stretch
    origins = [replica.origin for replica in late if replica.origin is not None]
    certainty = worst.share * stretch.length / (stretch.length + 2)
    ratio = float(offsets.own_ratio[members(worst.replica, view)].max())
    compute = f"(its compute takes {ratio:.2f}x its peers' time, which explains only a part of the delay)"
    if ratio < MAX_OWN_RATIO:
        compute = "although its compute time is normal"
    gc = f" (gc in {worst.num_with_gc} of {stretch.length} late launches)" if worst.num_with_gc else ""
    return Finding(
        detector=NAME,
        kind=Kind.LATE_LAUNCH,
        severity=severity_of(worst.cost),
        suspects=with_members(view, origins, (rank for each in late for rank in members(each.replica, view).tolist())),
        stage=offsets.stage.label,
        window=view.between(stretch.first, stretch.last),
        seconds_lost=worst.cost * float(view.step_ns[stretch.rows].sum()) / 1e9,
        share_lost=worst.cost,
        confidence=round(certainty if worst.origin is not None else 0.7 * certainty, 2),
        summary=f"{_who(view, late, origins)}: starts {offsets.stage.label} {worst.late_ns / 1e6:.0f} ms late in "
        f"{worst.share:.0%} of steps{since(view, stretch.first)} {compute}{gc}",
        next_step=_next_step(view, worst.origin, by_gc=worst.num_with_gc > stretch.length // 2),
        evidence={
            "late_ms": round(worst.late_ns / 1e6, 3),
            "share_of_steps": round(worst.share, 3),
            "late_launches": stretch.length,
            "late_launches_with_gc": worst.num_with_gc,
            "own_work_ratio": round(ratio, 3),
            "issue_latency": "unknown",
        },
    )


def _who(view: RunView, late: list[LateReplica], origins: list[int]) -> str:
    if not origins:
        ranks = members(late[0].replica, view).tolist()
        return f"replica {view.topology.replica(late[0].replica)} (ranks {fold_ranks(view.numbers(ranks))})"
    if len(origins) == 1:
        return view.describe(origins[0])
    return f"host {view.hosts[origins[0]]} (ranks {fold_ranks(view.numbers(origins))})"


def _next_step(view: RunView, origin: int | None, *, by_gc: bool) -> str:
    if by_gc:
        return "run garbage collection on all ranks in the same step: gc.disable(), then gc.collect() every N steps"
    where = "its ranks" if origin is None else f"rank {view.number(origin)} ({view.hosts[origin] or 'unknown host'})"
    return (
        f"check what the main thread of {where} does between operations (py-spy dump): synchronisation, "
        "logging, page faults, CPU clocks, pinning"
    )


def _varying(
    view: RunView, offsets: Offsets, late: Floats, collections: _Collections, growth: _Growth | None
) -> Finding:
    by_gc = collections.lost_share >= MIN_COST
    rank = collections.rank if by_gc else None
    grown = 0.0 if growth is None else float(np.nanmean(np.maximum(np.maximum(late.max(axis=1), 0) - growth.first, 0)))
    cost = min(1.0, max(grown, collections.lost_share if by_gc else 0.0))
    # Growth alone leaves the cause open. Garbage collections: rule of succession.
    count = collections.num_with_gc if by_gc else len(view.steps)
    known = late[~np.isnan(late).any(axis=1)]
    return Finding(
        detector=NAME,
        kind=Kind.LATE_LAUNCH,
        severity=severity_of(cost),
        suspects=() if rank is None else initiating(view, [rank]),
        stage=offsets.stage.label,
        window=view.window,
        seconds_lost=cost * float(view.step_ns.sum()) / 1e9,
        share_lost=cost,
        confidence=round((1.0 if by_gc else 0.7) * count / (count + 2), 2),
        summary=_pattern(view, offsets, collections if by_gc else None, growth, rank),
        next_step=_next_step(view, rank, by_gc=True)
        if by_gc
        else "record garbage collection (on by default) and check for work that differs from step to step: "
        "allocator, logging, data-dependent shapes. Run garbage collection on all ranks in the same step",
        evidence={
            "late_launches": collections.num_late,
            "late_launches_with_gc": collections.num_with_gc,
            "replicas_that_were_last": len(set(known.argmax(axis=1).tolist())),
            "slope_of_step_time_per_step": round(growth.slope, 5) if growth is not None else 0.0,
            "issue_latency": "unknown",
        },
    )


def _pattern(
    view: RunView, offsets: Offsets, collections: _Collections | None, growth: _Growth | None, rank: int | None
) -> str:
    stage = offsets.stage.label
    parts = [f"replicas start {stage} at different times, and the last replica changes from step to step"]
    if rank is not None:
        parts = [f"{view.describe(rank)}: starts {stage} late in irregular steps"]
    if growth is not None:
        parts.append(f"the difference grows from {growth.first:.0%} to {growth.last:.0%} of a step")
    if collections is not None:
        parts.append(f"gc in {collections.num_with_gc} of {collections.num_late} late launches")
    return ", ".join(parts)
