"""Stacks merged over ranks: each once, with the ranks that stand in it."""

from collections import defaultdict
from dataclasses import dataclass

from diagnose.hang.evidence import HangEvidence


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldedStack:
    """A stack and who stands in it."""

    frames: tuple[str, ...]
    """The innermost first."""
    ranks: tuple[int, ...]


def fold_stacks(evidence: HangEvidence) -> tuple[FoldedStack, ...]:
    """The stacks of ``evidence``, the rarest first: among many that wait, it is the odd one that matters."""
    ranks_of: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for rank, one in sorted(evidence.ranks.items()):
        if one.stack:
            ranks_of[one.stack].append(rank)
    folded = [FoldedStack(frames=frames, ranks=tuple(ranks)) for frames, ranks in ranks_of.items()]
    return tuple(sorted(folded, key=lambda stack: (len(stack.ranks), stack.ranks)))
