"""slow-link: collectives whose transfer is slow although no rank is late.

    dp group of pp0 tp0   |===|        transfer = the shortest duration among the members: without waiting
    dp group of pp0 tp1   |=======|    2.3x the groups that transfer the same amount: a link of this group is slow
    pair 1 -> 3           |==|
    pair 5 -> 7           |======|     A link of this pair is slow: rank 5 is in both, and in no fast group.

Groups are compared with groups of the same kind over the same steps. If these changed together, they are compared with
their own past in the window. If both pipeline and data-parallel groups changed, the cause is no link, and mfu-decline
reports it. ``slow_places`` finds the rank or host behind slow groups. Source: MegaScale 6.3, Holmes (all members long:
the communication), GREYHOUND and C4 (compare groups of equal kind). The thresholds are ours.
"""

from collections.abc import Sequence

import numpy as np

from diagnose.detectors.evidence import MIN_STEPS, since, with_members
from diagnose.detectors.slow_places import (
    MIN_RATIO,
    MIN_Z,
    NOISE_FLOOR,
    Against,
    FastGroups,
    Part,
    Rises,
    SlowGroup,
    find_rises,
    parts_of,
)
from diagnose.findings import Basis, Finding, Kind, severity_of
from diagnose.model.collectives import (
    PAIRS,
    Collectives,
    all_collectives,
    round_trips,
)
from diagnose.model.operations import Floats
from diagnose.model.peers import (
    Bar,
    Stretch,
    least_excess,
    log_ratios,
    medians,
    noise_between_steps,
    peer_median,
    persistent_excess,
    robust_sigma,
)
from diagnose.model.view import RunView
from diagnose.ranges import fold_ranks, list_some, named_ranks
from telemetry.stages import Stage, Stream

NAME = "slow-link"
FAST_RATIO = 1.2
"""Below this a group is fast: its members are not suspects."""
BAR = Bar(level=float(np.log(MIN_RATIO)), share=0.7, z=MIN_Z, num_steps=MIN_STEPS, noise_floor=NOISE_FLOOR)
MIN_SPREADS = 5.0
MIN_COST = 0.01
"""Share of step time. A smaller cost is not reported."""
SPREAD_FLOOR = 0.03


def detect_slow_link(view: RunView) -> list[Finding]:
    """One finding for each rank, host or set of groups that slow transfers have in common."""
    if len(view.steps) < MIN_STEPS:
        return []
    slow: list[SlowGroup] = []
    fast: list[FastGroups] = []
    for collectives in _collectives(view):
        total_ns = collectives.transfer_total_ns()
        log_ratio = log_ratios(total_ns, peer_median(total_ns, collectives.alike))
        found = _slower_than_peers(collectives, total_ns, log_ratio)
        moved = set(found)
        if not found:
            rises = find_rises(collectives, total_ns, view)
            found, moved = _slower_than_before(collectives, total_ns, rises), rises.moved
        slow.extend(found.values())
        fast.extend(_fast_groups(collectives, log_ratio, list(found), list(moved)))
    slow = _without_decline(slow, fast)
    findings = [_finding(view, part) for part in parts_of(slow, fast, view)] if slow else []
    return [finding for finding in findings if finding is not None]


def _collectives(view: RunView) -> list[Collectives]:
    """All collectives. For gloo, round trips replace pairs, because sends end before they arrive."""
    found = all_collectives(view.operations, view.topology)
    buffered = any(meta.get("backend") == "gloo" for meta in view.meta)
    trips = round_trips(view.operations, view.topology) if buffered else None
    if trips is None:
        return found
    sends = {send for send, _, _ in PAIRS}
    return [*(collectives for collectives in found if collectives.stage not in sends), trips]


def _without_decline(slow: list[SlowGroup], fast: Sequence[FastGroups]) -> list[SlowGroup]:
    """The slow groups, without those that became slow together on all streams, if no group stayed as fast as before."""
    streams = {group.stage.stream for group in slow if group.against is Against.PAST}
    everywhere = Stream.DP in streams and len(streams) > 1 and not any(len(groups.unmoved) for groups in fast)
    return [group for group in slow if group.against is Against.PEERS] if everywhere else slow


def _fast_groups(collectives: Collectives, log_ratio: Floats, slow: list[int], moved: list[int]) -> list[FastGroups]:
    """For each kind of groups: those that did not slow down, and those as fast as the rest."""
    columns = np.arange(log_ratio.shape[1])
    steady, unmoved = ~np.isin(columns, slow), ~np.isin(columns, moved)
    fast = steady & (medians(log_ratio, axis=0) < np.log(FAST_RATIO))
    return [
        FastGroups(
            unmoved=collectives.ranks[mine & unmoved],
            steady=collectives.ranks[mine & steady],
            fast=collectives.ranks[mine & fast],
            everyone=collectives.ranks[mine],
        )
        for mine in (collectives.alike == alike for alike in np.unique(collectives.alike))
    ]


def _slower_than_peers(collectives: Collectives, total_ns: Floats, log_ratio: Floats) -> dict[int, SlowGroup]:
    """Column -> the group, if it is slower than its peers."""
    noise = noise_between_steps(log_ratio, NOISE_FLOOR)
    least = max(BAR.level, least_excess(MIN_Z, noise, len(log_ratio)))
    candidates = np.flatnonzero((log_ratio >= least).sum(axis=0) >= MIN_STEPS // 2)  # few, of thousands
    found: dict[int, SlowGroup] = {}
    for column in candidates.tolist():
        if (high := persistent_excess(log_ratio, column, BAR, noise)) is None:
            continue
        stretch, excess = high
        if excess.median >= MIN_SPREADS * _spread_of_others(column, log_ratio[stretch.rows], collectives):
            found[column] = _slow_group(
                collectives, column, stretch, total_ns, np.exp(excess.median), excess.share, Against.PEERS
            )
    return found


def _spread_of_others(column: int, log_ratio: Floats, collectives: Collectives) -> float:
    """Spread among the other groups. A single peer mirrors the group and is left out."""
    others = np.ones(log_ratio.shape[1], dtype=bool)
    alike = collectives.alike == collectives.alike[column]
    others[alike if alike.sum() == 2 else column] = False
    return robust_sigma(medians(log_ratio[:, others], axis=0), SPREAD_FLOOR)


def _slow_group(
    collectives: Collectives,
    column: int,
    stretch: Stretch,
    total_ns: Floats,
    ratio: float,
    share: float,
    against: Against,
) -> SlowGroup:
    level_ns = float(np.nanmedian(total_ns[stretch.rows, column]))
    return SlowGroup(
        stage=collectives.stage,
        ranks=tuple(collectives.ranks[column].tolist()),
        stretch=stretch,
        ratio=float(ratio),
        share=share,
        excess_ns=level_ns * (1.0 - 1.0 / float(ratio)),
        against=against,
    )


def _slower_than_before(collectives: Collectives, total_ns: Floats, rises: Rises) -> dict[int, SlowGroup]:
    """Column -> the group, if it became slow and stayed slow."""
    last = len(total_ns) - 1
    return {
        column: _slow_group(
            collectives, column, Stretch(first=rise.row, last=last), total_ns, rise.ratio, rise.share, Against.PAST
        )
        for column, rise in rises.slow.items()
    }


def _finding(view: RunView, part: Part) -> Finding | None:
    worst = max(part.groups, key=lambda group: group.ratio)
    step_ns = float(np.median(view.step_ns[worst.stretch.rows]))
    lost_ns = min(step_ns, _cost_ns(part.groups))
    if lost_ns < MIN_COST * step_ns:
        return None
    certainty = worst.share * worst.stretch.length / (worst.stretch.length + 2)
    return Finding(
        detector=NAME,
        kind=Kind.SLOW_LINK,
        severity=severity_of(lost_ns / step_ns),
        suspects=with_members(view, part.initiating, (rank for group in part.groups for rank in group.ranks)),
        stage=worst.stage.label,
        window=view.between(worst.stretch.first, worst.stretch.last),
        seconds_lost=lost_ns * worst.stretch.length / 1e9,
        share_lost=lost_ns / step_ns,
        basis=Basis.EXCESS,
        confidence=round(certainty if part.initiating else 0.7 * certainty, 2),
        summary=f"{_who(view, part)}: {worst.stage.label} transfers take {worst.ratio:.1f}x as long as "
        f"{worst.against.value}{since(view, worst.stretch.first)}, and no rank was late",
        next_step=_next_step(view, part),
        evidence={
            "ratio": round(worst.ratio, 3),
            "compared_with": worst.against.value,
            "share_of_steps": round(worst.share, 3),
            "excess_ms_per_step": round(lost_ns / 1e6, 3),
            "slow_groups": [
                f"{group.stage.label} {fold_ranks(view.numbers(group.ranks))} {group.ratio:.2f}x"
                for group in part.groups[:20]
            ],
            "num_slow_groups": len(part.groups),
            **({"ends_of_link": [*ends]} if (ends := _ends(view, part)) else {}),
        },
    )


def _cost_ns(groups: Sequence[SlowGroup]) -> float:
    """Largest excess of a rank in a step, over all its transfers."""
    of_rank: dict[int, dict[Stage, float]] = {}
    for group in groups:
        for rank in group.ranks:
            stages = of_rank.setdefault(rank, {})
            stages[group.stage] = max(stages.get(group.stage, 0.0), group.excess_ns)
    return max(sum(stages.values()) for stages in of_rank.values())


def _who(view: RunView, part: Part) -> str:
    if len(part.initiating) == 1:
        return view.describe(part.initiating[0])
    if part.initiating:
        return f"host {view.hosts[part.initiating[0]]} (ranks {fold_ranks(view.numbers(part.initiating))})"
    if ends := _ends(view, part):
        return f"the link between {' and '.join(f'host {host} ({named_ranks(ranks)})' for host, ranks in ends.items())}"
    groups = {frozenset(group.ranks): fold_ranks(view.numbers(group.ranks)) for group in part.groups}
    first = next(iter(groups.values()))
    if len(groups) > 1:
        return f"{len(groups)} groups (first: ranks {first})"
    return f"the {'link between' if len(part.groups[0].ranks) == 2 else 'group of'} ranks {first}"


def _ends(view: RunView, part: Part) -> dict[str, list[int]]:
    """Hosts and ranks at the ends of the link, if the part is one link between two hosts and names neither."""
    members = {rank for group in part.groups for rank in group.ranks}
    hosts = sorted({view.hosts[rank] for rank in members})
    are_pairs = all(len({view.hosts[rank] for rank in group.ranks}) == len(group.ranks) for group in part.groups)
    if part.initiating or len(hosts) != 2 or not all(hosts) or not are_pairs:
        return {}
    return {host: view.numbers(sorted(rank for rank in members if view.hosts[rank] == host)) for host in hosts}


def _next_step(view: RunView, part: Part) -> str:
    if part.initiating:
        host = view.hosts[part.initiating[0]] or "its host"
        return (
            f"on {host}: check the network card and the cable (ethtool -S, ibstat, link_downed, symbol errors), then "
            "the switch port. Measure with nccl-tests against a healthy host. Drain the host if it is slow"
        )
    if ends := _ends(view, part):
        return (
            f"measure {' and '.join(ends)} each with a third host (nccl-tests): the records do not show which end of "
            "the link is slow. Check both network cards, and their switch ports for errors and congestion"
        )
    hosts = sorted({view.hosts[rank] for group in part.groups for rank in group.ranks} - {""})
    return (
        f"measure the links between {list_some(hosts, 8) or 'their hosts'} pair by pair (nccl-tests): the records do "
        "not show which one is slow. Check their switch ports for errors and congestion"
    )
