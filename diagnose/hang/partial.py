"""Verdicts on ranks that are known in part: logs, RAS and stacks show only some of the operations that a rank waits in.

A rank that is late in one group may wait in another one that the evidence does not show. Then it is a victim. This is
excluded if all other ranks of the job are known to wait for it, and in groups that it has not entered:

    rank 0 1 2   wait for 3    rank 3 is late: it is the only one that can be the cause
    rank 0 1     wait          ranks 2 and 3 are late: one of them may wait for the other. No rank is named
    rank 0 1     wait for 3    rank 2 waits in a group whose members are unknown: rank 3 may be in it. No rank is named

A rank of which nothing is known is not named: it may have entered the operation while a device or the network is stuck.
No rank is named if the number of ranks is a guess, because others may be missing, or if the job may still move. A stack
outside of all communication, or a process that gives no answer, is enough evidence.
"""

from collections.abc import Collection
from dataclasses import replace

from diagnose.hang.evidence import HangEvidence, RankEvidence
from diagnose.hang.waits import WaitGraph, Why
from diagnose.hang.wording import Cause

LEAST_WITNESSES = 2


def without_guessed_groups(evidence: HangEvidence, graph: WaitGraph) -> WaitGraph:
    """The graph without operations that all *known* members of a group have entered: others may be missing, in partial
    evidence and in dumps that list no members."""
    stuck = {key: ranks for key, ranks in graph.stuck.items() if evidence.groups[key[0]].complete}
    return replace(graph, stuck=stuck)


def not_waiting(evidence: HangEvidence, graph: WaitGraph) -> set[int]:
    """Ranks of the job that are not known to wait in communication."""
    known = set(range(evidence.world_size)) | evidence.ranks.keys()
    in_stack = {rank for rank, of_rank in evidence.ranks.items() if of_rank.on_host is False}
    return known - graph.blocked.keys() - in_stack


def sure_roots(evidence: HangEvidence, graph: WaitGraph) -> set[int]:
    """Ranks that others wait for and of which everything is known, or whose own device is stuck."""
    whole = {rank for rank, of_rank in evidence.ranks.items() if not of_rank.partial} - evidence.hidden_waits
    few = len(graph.device_stuck) < len(evidence.ranks) / 2  # else the count of the others is more likely to be wrong
    return ((graph.roots() - graph.device_stuck) & whole) | (graph.device_stuck if few else set())


def lone_suspect(evidence: HangEvidence, graph: WaitGraph, suspects: Collection[int]) -> int | None:
    """The only rank that does not wait, or None if the evidence is too weak.

    The evidence is enough if its stack shows that it is outside of all communication. It is also enough if all others
    wait for the rank, and it has not entered their operation or gives no answer.
    """
    if len(suspects) != 1 or not evidence.world_size:
        return None
    (rank,) = suspects
    of_rank = evidence.ranks.get(rank)
    if of_rank is None:
        return None
    has_witnesses = len(evidence.ranks.keys() - {rank}) >= LEAST_WITNESSES
    if of_rank.on_host and has_witnesses:
        return rank
    if evidence.guessed_size or evidence.may_move or not _all_wait_for(evidence, graph, rank):
        return None
    gives_no_answer = of_rank.gave_no_answer and has_witnesses and _all_wait_in_one(evidence, graph, rank)
    return rank if gives_no_answer or _is_behind(of_rank, graph) else None


def _all_wait_for(evidence: HangEvidence, graph: WaitGraph, rank: int) -> bool:
    """Whether all other ranks wait for this rank, directly or through others, and no operation has all its members."""
    others = (set(range(evidence.world_size)) | evidence.ranks.keys()) - {rank}
    return not graph.stuck and graph.reaching({rank}) >= others


def _all_wait_in_one(evidence: HangEvidence, graph: WaitGraph, rank: int) -> bool:
    """Whether all other ranks are in one collective, and wait for this rank."""
    waits = [graph.waits[other] for other in graph.waits if graph.waits[other].on == (rank,)]
    return len(waits) == evidence.world_size - 1 and len({(wait.group, wait.seq) for wait in waits}) == 1


def partial_cause(evidence: HangEvidence, graph: WaitGraph, rank: int) -> Cause:
    """Why the only suspect is named."""
    of_rank = evidence.ranks[rank]
    if _is_behind(of_rank, graph):
        return Cause.NEVER_ENTERED
    return Cause.ELSEWHERE if of_rank.on_host else Cause.SILENT


def _is_behind(of_rank: RankEvidence, graph: WaitGraph) -> bool:
    """Whether its own counts show that it did not enter an operation in which others wait."""
    return any(
        of_rank.rank in wait.on and wait.why is Why.NEVER_ENTERED and wait.group in of_rank.fronts
        for wait in graph.waits.values()
    )
