"""Evidence of many ranks in few lines: equal stacks and recorders together."""

from collections import defaultdict

from diagnose.hang.evidence import HangEvidence
from diagnose.ranges import fold_ranks

MAX_RECORDERS = 8
"""Limit of the listed recorders. Only four exist, but the names are untrusted."""


def recorders_of(evidence: HangEvidence) -> list[str]:
    """One line for each recorder: ``dump_nccl_trace_json of ranks 0-15``. Files of torch count as one recorder."""
    ranks: dict[str, list[int]] = defaultdict(list)
    for rank, of_rank in evidence.ranks.items():
        if of_rank.recorder:
            ranks["torch files" if of_rank.recorder.startswith("file:") else of_rank.recorder].append(rank)
    named = sorted(ranks.items())[:MAX_RECORDERS]
    return [f"{name} of {'rank' if len(users) == 1 else 'ranks'} {fold_ranks(users)}" for name, users in named]


def fold_stacks(evidence: HangEvidence) -> list[tuple[tuple[str, ...], tuple[int, ...]]]:
    """Stacks (the innermost frame first) and their ranks, the rarest stack first: it is the unusual one."""
    ranks_of: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for rank, of_rank in sorted(evidence.ranks.items()):
        if of_rank.stack:
            ranks_of[of_rank.stack].append(rank)
    stacks = [(stack, tuple(ranks)) for stack, ranks in ranks_of.items()]
    return sorted(stacks, key=lambda stack: (len(stack[1]), stack[1]))
