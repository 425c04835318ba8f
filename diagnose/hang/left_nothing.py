"""Ranks that left nothing: which of them must be behind, shown by those that wait for them.

A missing rank m is accused when two ranks p stand in one collective and m is the only member that can be late in it
(one alone may be sick itself), unless m may wait for another suspect s. It may when a group holds both m and s, except
that p is in that group too and has nothing pending there from before: then m, which runs the same program, has not
either.

    p  ...  all_reduce #6 of [m p s] ended   all_gather #9 of [m p] pending        m is late, and not because of s
    p  ...  all_reduce #6 of [m p s] pending all_gather #9 of [m p] pending        m may wait for s: say nothing
"""

from collections import Counter
from collections.abc import Iterable

from diagnose.hang.evidence import WHOLE_GROUP, HangEvidence, Pending
from diagnose.hang.waits import WaitGraph

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
