"""Equal stacks of many ranks as one."""

from dataclasses import dataclass

from diagnose.hang.evidence import HangEvidence


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldedStack:
    """A stack of the main thread, innermost first, and all ranks that stand in it."""

    frames: tuple[str, ...]
    ranks: tuple[int, ...]


def fold_stacks(evidence: HangEvidence) -> tuple[FoldedStack, ...]:
    """Each different stack once; ranks without one are left out."""
    by_frames: dict[tuple[str, ...], list[int]] = {}
    for rank, known in sorted(evidence.ranks.items()):
        if known.stack:
            by_frames.setdefault(known.stack, []).append(rank)
    return tuple(FoldedStack(frames=frames, ranks=tuple(ranks)) for frames, ranks in by_frames.items())
