"""Verdicts on ranks that are known in part: logs, RAS and stacks show some of what a rank waits for, never all of it.

A rank that is late in one group may wait in another one that the evidence does not show. Then it is a victim. This is
excluded if all other ranks of the job are known to wait: a rank that does not wait is the only one that can hold them.

    rank 0 1 2   wait          rank 3 is late, or says nothing: it is the only one that can be the cause
    rank 0 1     wait          ranks 2 and 3 are late: one of them may wait for the other. No rank is named

A rank of which nothing is known is named only if all others are in one collective, and with low confidence: it may have
entered, too, and a device or the network be stuck.
"""

from collections.abc import Collection
from dataclasses import replace

from diagnose.hang.evidence import HangEvidence, RankEvidence
from diagnose.hang.waits import LEAST_WITNESSES, WaitGraph, Why
from diagnose.hang.wording import Cause


def without_guessed_groups(evidence: HangEvidence, graph: WaitGraph) -> WaitGraph:
    """The graph without operations that all *known* members of a group have entered: others may be missing."""
    stuck = {key: ranks for key, ranks in graph.stuck.items() if evidence.groups[key[0]].complete}
    return replace(graph, stuck=stuck)


def not_waiting(evidence: HangEvidence, graph: WaitGraph) -> set[int]:
    """Ranks of the job that are not known to wait in communication."""
    known = set(range(evidence.world_size)) | evidence.ranks.keys()
    in_stack = {rank for rank, of_rank in evidence.ranks.items() if of_rank.on_host is False}
    return known - graph.blocked.keys() - in_stack


def sure_roots(evidence: HangEvidence, graph: WaitGraph) -> set[int]:
    """Ranks that others wait for and of which everything is known, or whose own device is stuck."""
    whole = {rank for rank, of_rank in evidence.ranks.items() if not of_rank.partial}
    few = len(graph.device_stuck) < len(evidence.ranks) / 2  # else the count of the others is more likely to be wrong
    return ((graph.roots() - graph.device_stuck) & whole) | (graph.device_stuck if few else set())


def lone_suspect(evidence: HangEvidence, graph: WaitGraph, suspects: Collection[int]) -> int | None:
    """The only rank that does not wait, if others are known to wait for it, or its stack shows that it is elsewhere."""
    if len(suspects) != 1 or not evidence.world_size:
        return None
    (rank,) = suspects
    of_rank = evidence.ranks.get(rank)
    has_witnesses = len(evidence.ranks.keys() - {rank}) >= LEAST_WITNESSES
    if of_rank is not None and of_rank.on_host and has_witnesses:
        return rank
    if not _may_hold_all(evidence, graph, rank):
        return None
    if of_rank is not None and _is_behind(of_rank, graph):
        return rank
    return rank if has_witnesses and _all_wait_in_one(evidence, graph, rank) else None


def _may_hold_all(evidence: HangEvidence, graph: WaitGraph, rank: int) -> bool:
    """Whether all other ranks may wait for this rank, directly or through others. A group whose members are all known,
    and have all entered an operation, is held by a device or the network."""
    reached = graph.reaching({rank})
    held = {other for other in graph.blocked if other not in reached}
    return not graph.stuck and all(
        graph.blocked[other].is_transfer or not evidence.groups[graph.blocked[other].group].complete for other in held
    )


def _all_wait_in_one(evidence: HangEvidence, graph: WaitGraph, rank: int) -> bool:
    """Whether all other ranks are in one collective, and wait for this rank."""
    waits = [graph.waits[other] for other in graph.waits if graph.waits[other].on == (rank,)]
    return len(waits) == evidence.world_size - 1 and len({(wait.group, wait.seq) for wait in waits}) == 1


def partial_cause(evidence: HangEvidence, graph: WaitGraph, rank: int) -> Cause:
    """What is known of the only suspect."""
    of_rank = evidence.ranks.get(rank)
    if of_rank is None:
        return Cause.MISSING
    if _is_behind(of_rank, graph):
        return Cause.NEVER_ENTERED
    return Cause.ELSEWHERE if of_rank.on_host else Cause.SILENT


def _is_behind(of_rank: RankEvidence, graph: WaitGraph) -> bool:
    """Whether its own counts show that it did not enter an operation in which others wait."""
    return any(
        of_rank.rank in wait.on and wait.why is Why.NEVER_ENTERED and wait.group in of_rank.fronts
        for wait in graph.waits.values()
    )
