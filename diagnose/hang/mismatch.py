"""Members that issued different operations under one number: the odd ones out."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from diagnose.hang.evidence import HangEvidence, RankEvidence

LEAST_MAJORITY = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """A collective on which members disagree."""

    group: int
    seq: int
    odd: tuple[int, ...]
    """Empty when nothing tells which side is right."""
    by_majority: bool
    """Else by what is usual."""
    theirs: str
    """What the odd ones issued."""
    others: str
    """What the others issued."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """One member's part in a collective: pending, or ended already."""

    signature: str
    usual: str = ""
    since_ns: int = 0
    pending: bool = False


def find_mismatch(evidence: HangEvidence) -> Mismatch | None:
    """The first collective, by time, that somebody is pending in and that members do not agree on.

    Right is the majority; where there is none, those who issue what they issued at the same place a step before.
    """
    found = [
        (min(call.since_ns for call in calls.values() if call.pending), key, calls)
        for key, calls in _calls(evidence).items()
        if len({call.signature for call in calls.values()}) > 1
    ]
    if not found:
        return None
    _, (group, seq), calls = min(found, key=lambda one: one[:2])
    return _odd_ones(group, seq, calls)


def _calls(evidence: HangEvidence) -> dict[tuple[int, int], dict[int, _Call]]:
    """By group and number, then by rank: what is known of who issued what, where anybody is pending."""
    calls: dict[tuple[int, int], dict[int, _Call]] = defaultdict(dict)
    for rank, one in evidence.ranks.items():
        for op in one.pending:
            if not op.is_transfer and op.signature:
                calls[op.group, op.seq][rank] = _Call(
                    signature=op.signature, usual=op.usual, since_ns=op.since_ns, pending=True
                )
    for rank, one in evidence.ranks.items():
        for key, signature in _ended(one).items():
            if key in calls and signature:
                calls[key].setdefault(rank, _Call(signature=signature))
    return calls


def _ended(one: RankEvidence) -> dict[tuple[int, int], str]:
    return {(group, call.seq): call.signature for group, calls in one.ended.items() for call in calls}


def _odd_ones(group: int, seq: int, calls: Mapping[int, _Call]) -> Mismatch:
    majority = _majority(calls.values())
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


def _majority(calls: Collection[_Call]) -> str | None:
    counts = Counter(call.signature for call in calls).most_common(2)
    if counts[0][1] < LEAST_MAJORITY or (len(counts) > 1 and counts[1][1] >= counts[0][1]):
        return None
    return counts[0][0]


def _as_always(calls: Collection[_Call]) -> str | None:
    """What those issued that do as they did a step before; or should have issued that do not, if others did."""
    kept = {call.signature for call in calls if call.usual == call.signature}
    left = {call.usual for call in calls if call.usual not in ("", call.signature)}
    issued = {call.signature for call in calls}
    right = kept or (left & issued)
    return next(iter(right)) if len(right) == 1 else None
