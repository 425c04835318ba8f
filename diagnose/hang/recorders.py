"""Which flight recorders the evidence of a hang came from, in words."""

from collections import defaultdict

from diagnose.hang.evidence import HangEvidence
from diagnose.ranges import fold_ranks

_FILE = "file:"
MOST_NAMED = 8
"""There are four; the names come from outside."""


def recorders_of(evidence: HangEvidence) -> list[str]:
    """One line a recorder: ``dump_nccl_trace_json of ranks 0-15``. Files of torch's count as one."""
    ranks: dict[str, list[int]] = defaultdict(list)
    for rank, one in evidence.ranks.items():
        if one.recorder:
            ranks["files of torch" if one.recorder.startswith(_FILE) else one.recorder].append(rank)
    named = sorted(ranks.items())[:MOST_NAMED]
    return [f"{name} of {'rank' if len(told) == 1 else 'ranks'} {fold_ranks(told)}" for name, told in named]
