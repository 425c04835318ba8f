"""What makes a bad node bad, as far as the pairs tell. Pure.

Own products slow as well: it computes slowly. Own products as fast as everybody's: the time goes into the all-reduce,
by its network, or because its processes were held up there.
"""

from statistics import median

from diagnose.nodecheck.pairs.judge import JudgeSettings
from diagnose.nodecheck.pairs.records import BadNode, PairedVerdict


def cause_of(bad: BadNode, verdict: PairedVerdict) -> str:
    """One clause for people."""
    own = _own_s(verdict)
    if bad.failed or bad.node not in own:
        reasons = [run.reason for run in verdict.runs if bad.node in run.members and run.reason]
        return reasons[-1] if reasons else "no pair with it finished"
    ratio = own[bad.node] / median(own.values())
    if ratio > JudgeSettings().ratio:
        return f"its own products took {ratio:.1f}x as long as the others'"
    return "its own products are as fast as the others': look at its network, and at what holds its processes up"


def _own_s(verdict: PairedVerdict) -> dict[int, float]:
    """The best own time of each node."""
    best: dict[int, float] = {}
    for run in verdict.runs:
        for node, seconds in zip(run.members, run.own_s or (), strict=False):
            best[node] = min(seconds, best.get(node, seconds))
    return best
