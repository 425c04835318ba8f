"""Members that issued different operations under one number: the odd ones out, by majority."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
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

    Right is the majority; where there is none, those who issue what they issued at the same place a step before.
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
    return _odd_ones(pending, group, seq)


def _pending_collectives(evidence: HangEvidence) -> dict[tuple[int, int], dict[int, Pending]]:
    pending: dict[tuple[int, int], dict[int, Pending]] = defaultdict(dict)
    for rank, one in evidence.ranks.items():
        for op in one.pending:
            if op.op not in ("send", "recv"):
                pending[op.group, op.seq][rank] = op
    return pending


def _odd_ones(pending: Mapping[tuple[int, int], Mapping[int, Pending]], group: int, seq: int) -> Mismatch:
    ops = pending[group, seq]
    right = _majority(ops.values()) or _unchanged(ops.values())
    odd = tuple(sorted(rank for rank, op in ops.items() if right and op.signature not in ("", right)))
    return Mismatch(
        group=group,
        seq=seq,
        odd=odd,
        theirs=ops[odd[0]].signature if odd else "",
        others=right or " / ".join(sorted({op.signature for op in ops.values()})),
        disagreeing=tuple(sorted(ops)),
    )


def _majority(ops: Collection[Pending]) -> str | None:
    counts = Counter(op.signature for op in ops if op.signature).most_common(2)
    if counts[0][1] < LEAST_MAJORITY or (len(counts) > 1 and counts[1][1] >= counts[0][1]):
        return None
    return counts[0][0]


def _unchanged(ops: Collection[Pending]) -> str | None:
    """What those issued that do as they did a step before, if they agree and all others do not."""
    known = [op for op in ops if op.usual]
    as_always = {op.signature for op in known if op.signature == op.usual}
    changed = [op for op in known if op.signature != op.usual]
    return as_always.pop() if len(as_always) == 1 and changed else None
