"""Ranks whose host stopped issuing before their peers' did, though they stand in the same operation as these.

With NCCL the host runs ahead of the device. Ranks of one program that stand in one collective run on to the same point
and wait there; a second culprit among them has issued less:

    rank 8   all_to_all #20947 pending, 9 more issued behind it      a victim
    rank 9   all_to_all #20947 pending, 9 more                       a victim, as far as 8
    rank 11  all_to_all #20947 pending, 2 more                       its host stands still, too
    rank 10                                                          never entered it
"""

from collections import Counter, defaultdict

from diagnose.hang.evidence import WHOLE_GROUP, HangEvidence
from diagnose.hang.waits import WaitGraph

LEAST_PEERS = 2


def stopped_short(evidence: HangEvidence, graph: WaitGraph) -> set[int]:
    """Ranks that are behind peers which all, two at least, are exactly as far as one another. Says nothing of ranks
    whose host is known to wait."""
    standing: dict[tuple[int, int], list[int]] = defaultdict(list)
    for rank, wait in graph.waits.items():
        if graph.blocked[rank].peer == WHOLE_GROUP and evidence.ranks[rank].on_host is None:
            standing[wait.group, wait.seq].append(rank)
    return {short for ranks in standing.values() for short in _short_of(evidence, ranks)}


def _short_of(evidence: HangEvidence, ranks: list[int]) -> set[int]:
    """The minority of ``ranks`` that is behind in some group and ahead in none."""
    as_far: dict[frozenset[tuple[str, int]], list[int]] = defaultdict(list)
    for rank in ranks:
        as_far[_issued(evidence, rank)].append(rank)
    ahead = max(as_far.values(), key=len)
    if len(as_far) != 2 or len(ahead) < max(LEAST_PEERS, len(ranks) - 1):
        return set()
    if len({_been_through(evidence, rank) for rank in ranks}) > 1:
        return set()  # of another pipeline stage, or elsewhere in the program
    furthest = dict(_issued(evidence, ahead[0]))
    (short,) = (rank for rank in ranks if rank not in ahead)
    issued = dict(_issued(evidence, short))
    same_groups = issued.keys() == furthest.keys()
    return {short} if same_groups and all(issued[name] <= furthest[name] for name in furthest) else set()


def _issued(evidence: HangEvidence, rank: int) -> frozenset[tuple[str, int]]:
    fronts = evidence.ranks[rank].fronts
    return frozenset((evidence.groups[index].name, front.entered) for index, front in fronts.items())


def _been_through(evidence: HangEvidence, rank: int) -> frozenset[tuple[str, int]]:
    """What tells a program and a place in it: collectives completed in each group, transfers under way."""
    one = evidence.ranks[rank]
    completed = {(evidence.groups[index].name, front.completed) for index, front in one.fronts.items()}
    return frozenset(completed | set(Counter(op.op for op in one.pending if op.is_transfer).items()))
