"""Members that issued different operations under one number: the odd ones out, by majority."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from diagnose.hang.evidence import HangEvidence, Pending

LEAST_MAJORITY = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """A collective on which members disagree."""

    group: int
    seq: int
    odd: tuple[int, ...]
    """Empty when neither side is in the majority."""
    theirs: str
    """What the odd ones issued."""
    others: str
    """What the majority issued."""
    disagreeing: tuple[int, ...]
    """All that were seen in it."""


def find_mismatch(evidence: HangEvidence) -> Mismatch | None:
    """The first collective, by time, that members pending in it do not agree on.

    Where a group of two disagrees, groups of the same name that are at the same number decide.
    """
    pending = _pending_collectives(evidence)
    found = [
        (min(op.since_ns for op in ops.values()), group, seq)
        for (group, seq), ops in pending.items()
        if len({op.signature for op in ops.values() if op.signature}) > 1
    ]
    if not found:
        return None
    _, group, seq = min(found)
    return _odd_ones(evidence, pending, group, seq)


def _pending_collectives(evidence: HangEvidence) -> dict[tuple[int, int], dict[int, Pending]]:
    pending: dict[tuple[int, int], dict[int, Pending]] = defaultdict(dict)
    for rank, one in evidence.ranks.items():
        for op in one.pending:
            if op.op not in ("send", "recv"):
                pending[op.group, op.seq][rank] = op
    return pending


def _odd_ones(
    evidence: HangEvidence, pending: dict[tuple[int, int], dict[int, Pending]], group: int, seq: int
) -> Mismatch:
    ops = pending[group, seq]
    majority = _majority(op.signature for op in ops.values()) or _majority(
        op.signature
        for (other, number), theirs in pending.items()
        if number == seq and evidence.groups[other].name == evidence.groups[group].name
        for op in theirs.values()
    )
    odd = tuple(sorted(rank for rank, op in ops.items() if majority and op.signature not in ("", majority)))
    return Mismatch(
        group=group,
        seq=seq,
        odd=odd,
        theirs=ops[odd[0]].signature if odd else "",
        others=majority or " / ".join(sorted({op.signature for op in ops.values()})),
        disagreeing=tuple(sorted(ops)),
    )


def _majority(signatures: Iterator[str]) -> str | None:
    counts = Counter(one for one in signatures if one).most_common(2)
    if not counts or counts[0][1] < LEAST_MAJORITY or (len(counts) > 1 and counts[1][1] >= counts[0][1]):
        return None
    return counts[0][0]
