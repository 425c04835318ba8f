"""Whether a lost link explains a stalled job. Then no rank is the cause, and while the link may return it is no hang.

    link of host-2   ----.                      .------        the job stopped within moments of the loss
    job              -------|                     |-|  |--     and goes on, perhaps bit by bit, once the link is back
                         down  stands still     up  each connection sends lost packets again

Ranks without records: which of them must be behind, shown by the ranks that wait for them.

A missing rank m is accused when two ranks p stand in one collective and m is the only member that can be late in it
(one alone may be sick itself), unless m may wait for another suspect s. It may when a group holds both m and s, except
that p is in that group too and has nothing pending there from before: then m, which runs the same program, has not
either.

    p  ...  all_reduce #6 of [m p s] ended   all_gather #9 of [m p] pending        m is late, and not because of s
    p  ...  all_reduce #6 of [m p s] pending all_gather #9 of [m p] pending        m may wait for s: say nothing
"""

from collections import Counter
from collections.abc import Iterable

from diagnose.hang.deaths import CONSEQUENCES
from diagnose.hang.evidence import NS_PER_S, WHOLE_GROUP, HangEvidence, Pending, Process, RankEvidence
from diagnose.hang.network import CutOff
from diagnose.hang.waits import WaitGraph
from diagnose.model.outages import Outage
from diagnose.ranges import fold_ranks

LEAST_WITNESSES = 2


def certain_roots(evidence: HangEvidence, graph: WaitGraph, suspects: Iterable[int]) -> set[int]:
    """Missing ranks that are behind for certain. ``suspects`` are the visible ones that are behind."""
    missing = set(evidence.missing)
    wanted = {rank for wait in graph.waits.values() for rank in wait.on} & missing
    if not wanted:
        return set()
    suspected = missing | set(suspects)
    groups = _groups_of(evidence, set(evidence.ranks) | missing)
    return {rank for rank in wanted if _is_certain(evidence, graph, rank, suspected - {rank}, groups)}


def _may_hold_up(
    evidence: HangEvidence, graph: WaitGraph, rank: int, suspects: set[int], groups: dict[int, set[int]]
) -> set[int]:
    """Groups in which a missing rank may wait: for a suspect, or in a collective for one that waits for a suspect, or
    for one that waits for it in a circle."""
    between = graph.reaching(suspects) | {one for one in graph.reaching({rank}) if graph.waits[one].on != (rank,)}
    shared = {index for other in suspects for index in groups[rank] & groups[other]}
    collectives = {index for one in evidence.ranks.values() for index in one.fronts}
    return shared | {index for one in between - {rank} for index in groups[rank] & groups[one] & collectives}


def _groups_of(evidence: HangEvidence, ranks: set[int]) -> dict[int, set[int]]:
    found: dict[int, set[int]] = {rank: set() for rank in ranks}
    for index, group in enumerate(evidence.groups):
        for rank in ranks.intersection(group.members):
            found[rank].add(index)
    return found


def _is_certain(
    evidence: HangEvidence, graph: WaitGraph, rank: int, others: set[int], groups: dict[int, set[int]]
) -> bool:
    shared = _may_hold_up(evidence, graph, rank, others, groups)
    witnesses = [
        waiting
        for waiting, wait in graph.waits.items()
        if wait.on == (rank,) and graph.blocked[waiting].peer == WHOLE_GROUP
    ]
    places = Counter((graph.waits[waiting].group, graph.waits[waiting].seq) for waiting in witnesses)
    return any(
        places[graph.waits[waiting].group, graph.waits[waiting].seq] >= LEAST_WITNESSES
        and all(_is_past(evidence, waiting, graph.blocked[waiting], index) for index in shared)
        for waiting in witnesses
    )


def _is_past(evidence: HangEvidence, waiting: int, standing_in: Pending, group: int) -> bool:
    """Whether the waiting rank has been through all of ``group`` that comes before what it stands in."""
    if waiting not in evidence.groups[group].members or group == standing_in.group:
        return False
    pending = evidence.ranks[waiting].pending
    before = pending[: pending.index(standing_in)]
    return all(op.group != group for op in before)


BEFORE_NS = 5 * NS_PER_S
"""A job that stood still for longer when the link was lost stood still over something else: clocks, a long transfer."""
AFTER_NS = 30 * NS_PER_S
"""One that went on for longer does without that link."""
CLOCKS_NS = NS_PER_S
LATEST_NS = 2**62
GIVING_UP = ("SIGABRT", "SIGTERM", "SIGINT", "SIGHUP")
"""How a rank ends that gives a collective up, or that somebody ends."""
GRACE_NS = 5 * NS_PER_S
"""Beside as long as the outage: lost packets are tried again ever more seldom (RFC 6298, the timer doubles)."""


def find_cut_off(evidence: HangEvidence, graph: WaitGraph) -> CutOff | None:
    """The newest outage that explains the standstill; None where none does."""
    stands = bool(graph.waits or graph.stuck) or _all_fell_over_it(evidence)
    if not stands or _somebody_stands_elsewhere(evidence, graph) or _somebody_was_killed(evidence):
        return None
    for outage in sorted(evidence.network.outages, key=lambda outage: -outage.down_ns):
        found = _cut_off(evidence, outage)
        if found is not None:
            return found
    return None


def _cut_off(evidence: HangEvidence, outage: Outage) -> CutOff | None:
    ranks = tuple(sorted(rank for rank, one in evidence.ranks.items() if one.host == outage.host))
    others = len(evidence.ranks) - len(ranks)
    stopped_ns = evidence.moved_ns
    taken_ns = max((one.taken_ns for one in evidence.ranks.values()), default=0)
    now_ns = max(evidence.network.seen_ns, taken_ns)
    if not ranks or not others or not stopped_ns:
        return None
    gave_up = evidence.network.gave_up
    if not gave_up and now_ns > _recovered_ns(outage):
        return None
    down_s = outage.seconds(now_ns)
    is_flap = not gave_up and down_s < _limit_s(evidence)
    stopped_again = is_flap and not outage.lasts and outage.up_ns <= stopped_ns
    if not (stopped_again or _stopped_as_it_was_lost(outage, stopped_ns)):
        return None
    return CutOff(outage=outage, ranks=ranks, down_s=down_s, is_flap=is_flap)


def _stopped_as_it_was_lost(outage: Outage, stopped_ns: int) -> bool:
    """One that went on for long, or that gives up long after the link was back, stopped over something else."""
    end_ns = min(outage.down_ns + AFTER_NS, (outage.up_ns or LATEST_NS) + CLOCKS_NS)
    return outage.down_ns - BEFORE_NS <= stopped_ns <= end_ns


def _recovered_ns(outage: Outage) -> int:
    """When all connections over a link that is back are: each tries its lost packets again by itself, and until then a
    job may go on a little and stand still again."""
    return LATEST_NS if outage.lasts else 2 * outage.up_ns - outage.down_ns + GRACE_NS


def _limit_s(evidence: HangEvidence) -> float:
    """A link that is down for longer does not flap any more."""
    longest_s = evidence.network.settings.longest_flap_s
    return min(longest_s, evidence.network.patience.seconds or longest_s)


def _somebody_stands_elsewhere(evidence: HangEvidence, graph: WaitGraph) -> bool:
    """Whether a rank that others wait for stands outside of all communication: no link holds it there."""
    seen = [evidence.ranks[rank] for rank in graph.roots() if rank in evidence.ranks]
    return any(one.on_host or one.process is Process.STOPPED for one in seen)


def _somebody_was_killed(evidence: HangEvidence) -> bool:
    """Whether a rank ended in a way that no lost peer causes, before the job stood still for long."""
    dead = [one for one in evidence.ranks.values() if one.process is Process.DEAD]
    return any(one.ended_by.startswith("SIG") and one.ended_by not in GIVING_UP for one in dead)


def _all_fell_over_it(evidence: HangEvidence) -> bool:
    """Whether ranks have ended, and all that have show faults that a lost peer causes."""
    fell = [one for one in evidence.ranks.values() if any(line.fault for line in one.log)]
    return bool(fell) and all(map(_fell_over_a_peer, fell))


def _fell_over_a_peer(one: RankEvidence) -> bool:
    return any(line.fault in CONSEQUENCES for line in one.log)


def cut_off_headline(evidence: HangEvidence, found: CutOff) -> str:
    """The verdict in one line."""
    outage, network = found.outage, evidence.network
    who = f"{outage.device} of {outage.host} {outage.manner}"
    cut = f"rank{'s' if len(found.ranks) > 1 else ''} {fold_ranks(found.ranks)} cut off"
    if network.gave_up:
        return f"{who} for {_seconds(found.down_s)}, {cut}: the job waited and then aborted"
    if not outage.lasts:
        is_about = evidence.tense("is about", "was about")
        return f"{who} for {_seconds(found.down_s)} and is up again, {cut} meanwhile: the job {is_about} to continue"
    if evidence.has_ended:
        return f"{who}, {cut}: the job waited for the link until it ended"
    limit = network.patience
    until = f"; it aborts after {limit.seconds:g} s ({limit.setting})" if limit.seconds else ""
    return f"{who} {_seconds(found.down_s)} ago, {cut}: the job waits for the link{until}"


def cut_off_next_step(found: CutOff) -> str:
    """What to do now."""
    outage = found.outage
    look = f"on {outage.host}, check dmesg, ethtool -S {outage.device}, the cable and the switch port"
    if found.is_flap:
        return f"wait: the job continues if the link returns in time. If it stays down: {look}"
    return f"{look}. Restart without the host"


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s"
