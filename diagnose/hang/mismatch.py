"""Ranks that issued something else than their peers, or less.

*Mismatch*: members issued different operations under one number. The minority is wrong.

*Left out*: ranks of one pipeline stage run one program (so the topology must be known), and use their groups in the
same order. A rank left an operation out if it is as far as a witness in one group, and behind it in another group that
the witness entered *earlier*. This resolves a deadlock among ranks that all wait for each other.

    witness   tp #7   then   dp #3
    rank      tp #6          dp #3        it entered dp #3 without tp #7

*Stopped short*: with NCCL the host runs ahead of the device. Ranks of one program that are in one collective continue
to the same point and wait there. A second culprit among them has issued less:

    rank 8   all_to_all #20947 pending, 9 more issued after it       a victim
    rank 9   all_to_all #20947 pending, 9 more                       a victim, as far as 8
    rank 11  all_to_all #20947 pending, 2 more                       its host has stopped, too
    rank 10                                                          never entered it
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from diagnose.hang.evidence import WHOLE_GROUP, Front, HangEvidence
from diagnose.hang.waits import WaitGraph

LEAST_MAJORITY = 2
LEAST_WITNESSES = 2
"""A single witness may itself be the rank that left something out."""
LEAST_PEERS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """A collective on which members disagree."""

    group: int
    seq: int
    odd: tuple[int, ...]
    """Empty if it is unknown which side is right."""
    by_majority: bool
    """Whether the majority shows which ranks are odd. Otherwise the usual operation shows it."""
    theirs: str
    """Operation of the odd ranks."""
    others: str
    """Operation of the other ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """One member's part in a collective: pending, or ended already."""

    signature: str
    usual: str = ""
    since_ns: int = 0
    pending: bool = False


def find_mismatch(evidence: HangEvidence) -> Mismatch | None:
    """The first collective, by time, that is pending on some rank and that members do not agree on.

    The majority is right: of the ranks with evidence, or of all members if ranks are known in part only. Without one,
    ranks are right that issue the same as at this place one step before.
    """
    mismatches = [
        (min(call.since_ns for call in calls.values() if call.pending), collective, calls)
        for collective, calls in _calls(evidence).items()
        if len({call.signature for call in calls.values()}) > 1
    ]
    if not mismatches:
        return None
    _, (group, seq), calls = min(mismatches, key=lambda mismatch: mismatch[:2])
    majority = _majority(calls.values(), _least_majority(evidence, group))
    right = majority or _as_always(calls.values())
    odd = tuple(sorted(rank for rank, call in calls.items() if right and call.signature != right))
    return Mismatch(
        group=group,
        seq=seq,
        odd=odd,
        by_majority=majority is not None,
        theirs=calls[odd[0]].signature if odd else "",
        others=right or " / ".join(sorted({call.signature for call in calls.values()})),
    )


def _calls(evidence: HangEvidence) -> dict[tuple[int, int], dict[int, _Call]]:
    """Group and number of each collective that is pending on some rank -> rank -> its known call."""
    calls: dict[tuple[int, int], dict[int, _Call]] = defaultdict(dict)
    for rank, of_rank in evidence.ranks.items():
        for op in of_rank.pending:
            if not op.is_transfer and op.signature:
                calls[op.group, op.seq][rank] = _Call(
                    signature=op.signature, usual=op.usual, since_ns=op.since_ns, pending=True
                )
    for rank, of_rank in evidence.ranks.items():
        ended = {(group, call.seq): call.signature for group, newest in of_rank.ended.items() for call in newest}
        for collective, signature in ended.items():
            if collective in calls and signature:
                calls[collective].setdefault(rank, _Call(signature=signature))
    return calls


def _least_majority(evidence: HangEvidence, group: int) -> float:
    """Number of ranks that must issue the same. Ranks without evidence may be on either side."""
    if not evidence.is_partial:
        return LEAST_MAJORITY
    members = evidence.groups[group]
    is_known = members.complete and not (evidence.guessed_size and len(members.members) == evidence.world_size)
    return max(len(members.members) // 2 + 1, LEAST_MAJORITY) if is_known else float("inf")


def _majority(calls: Collection[_Call], least: float) -> str | None:
    counts = Counter(call.signature for call in calls).most_common(2)
    if counts[0][1] < least or (len(counts) > 1 and counts[1][1] >= counts[0][1]):
        return None
    return counts[0][0]


def _as_always(calls: Collection[_Call]) -> str | None:
    """The operation of ranks that issue the same as a step before. Without any: the usual operation of the other
    ranks, if some rank issued it."""
    kept = {call.signature for call in calls if call.usual == call.signature}
    left = {call.usual for call in calls if call.usual not in ("", call.signature)}
    right = kept or (left & {call.signature for call in calls})
    return next(iter(right)) if len(right) == 1 else None


def find_left_out(evidence: HangEvidence, among: Collection[int]) -> set[int]:
    """Ranks of ``among`` that left an operation out."""
    topology = evidence.topology
    if topology is None:
        return set()
    # A rank is in one group of each name: its tp group, its dp group.
    fronts = {
        rank: {evidence.groups[index].name: front for index, front in of_rank.fronts.items()}
        for rank, of_rank in evidence.ranks.items()
    }
    found: set[int] = set()
    for rank in among:
        same_program = np.flatnonzero(topology.index["pp"] == topology.index["pp"][rank]).tolist()
        witnesses = [fronts[other] for other in same_program if other != rank and other in fronts]
        if sum(_left_out(fronts[rank], witness) for witness in witnesses) >= LEAST_WITNESSES:
            found.add(rank)
    return found


def _left_out(mine: Mapping[str, Front], witness: Mapping[str, Front]) -> bool:
    for name, front in witness.items():
        own = mine.get(name)
        if own is None or own.entered >= front.entered or not front.entered_ns:
            continue
        if any(
            theirs.entered_ns > front.entered_ns and other in mine and mine[other].entered >= theirs.entered
            for other, theirs in witness.items()
        ):
            return True
    return False


def stopped_short(evidence: HangEvidence, graph: WaitGraph) -> set[int]:
    """Ranks that are behind their peers. There must be at least two such peers, all in the same operation. Ranks whose
    host is known to wait are not examined."""
    in_collective: dict[tuple[int, int], list[int]] = defaultdict(list)
    for rank, wait in graph.waits.items():
        if graph.blocked[rank].peer == WHOLE_GROUP and evidence.ranks[rank].on_host is None:
            in_collective[wait.group, wait.seq].append(rank)
    return {short for ranks in in_collective.values() for short in _short_of(evidence, ranks)}


def _short_of(evidence: HangEvidence, ranks: list[int]) -> set[int]:
    """The minority of ``ranks`` that is behind in some group and ahead in none."""
    as_far: dict[frozenset[tuple[str, int]], list[int]] = defaultdict(list)
    for rank in ranks:
        as_far[_issued(evidence, rank)].append(rank)
    ahead = max(as_far.values(), key=len)
    if len(as_far) != 2 or len(ahead) < max(LEAST_PEERS, len(ranks) - 1):
        return set()
    if len({_place_in_program(evidence, rank) for rank in ranks}) > 1:
        return set()  # of another pipeline stage, or elsewhere in the program
    furthest = dict(_issued(evidence, ahead[0]))
    (short,) = (rank for rank in ranks if rank not in ahead)
    issued = dict(_issued(evidence, short))
    same_groups = issued.keys() == furthest.keys()
    return {short} if same_groups and all(issued[name] <= furthest[name] for name in furthest) else set()


def _issued(evidence: HangEvidence, rank: int) -> frozenset[tuple[str, int]]:
    fronts = evidence.ranks[rank].fronts
    return frozenset((evidence.groups[index].name, front.entered) for index, front in fronts.items())


def _place_in_program(evidence: HangEvidence, rank: int) -> frozenset[tuple[str, int]]:
    """Collectives completed in each group, and pending transfers: they identify a program and a place in it."""
    of_rank = evidence.ranks[rank]
    completed = {(evidence.groups[index].name, front.completed) for index, front in of_rank.fronts.items()}
    return frozenset(completed | set(Counter(op.op for op in of_rank.pending if op.is_transfer).items()))
