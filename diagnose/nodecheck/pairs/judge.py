"""Which nodes are bad, from the times of pairs. Pure.

A node's time is the best that it reached with any partner: a healthy one shows its own speed as soon as its partner is
healthy, too. The slow pair accuses both, the second pair acquits one:

            round 0         round 1        best
    0    (0 1)  1.0 s    (0 3)  1.0 s      1.0
    1    (0 1)  1.0 s    (1 2)  3.1 s      1.0     victim of 2, acquitted by round 0
    2    (2 3)  3.0 s    (1 2)  3.1 s      3.0     suspect: slow twice, and 1 does well without it
    3    (2 3)  3.0 s    (0 3)  1.0 s      1.0     victim of 2, acquitted by round 1

Two bars. Above 1.5 times the lower quartile over nodes one is *undecided* and works with further partners: early on,
bad nodes and their victims may be more than half. Above 1.5 times the lower median, and far above the scatter of pairs
without a suspect, it is *bad*: where times lie wide apart nobody is accused, nor where more than half are slow: that is
a mixed fleet, or one that only an absolute expectation can judge.

What makes a bad node bad, as far as the pairs tell. Pure.

Own products slow as well: it computes slowly. Own products as fast as everybody's: the time goes into the all-reduce,
by its network, or because its processes were held up there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from statistics import median

from diagnose.nodecheck.pairs.records import BadNode, Judgement, PairedVerdict, PairRun

SIGMA_OF_MAD = 1.4826


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSettings:
    """When a time is far above the others."""

    ratio: float = 1.5
    """Over the usual time: what scatter of 20% either way cannot reach (1.2 / 0.8)."""
    z: float = 5.0
    """In robust standard deviations above the middle of pairs without a suspect."""
    min_failures: int = 2
    min_slow_runs: int = 3
    """With so many partners, where there are so many, a node must have been slow."""


def judge(nodes: Sequence[int], runs: Sequence[PairRun], settings: JudgeSettings | None = None) -> Judgement:
    """Name the nodes that were slow or failed with every partner, of whom one did well without them."""
    settings = settings or JudgeSettings()
    best = best_of_nodes(nodes, runs)
    finished = sorted(time for time in best.values() if time < inf)
    poor = {node: time for node, time in best.items() if time > settings.ratio * _at(finished, 0.25)}
    tallest = _tallest_s(best, runs, settings.ratio * _at(finished, 0.5), settings)
    bad = [node for node, time in poor.items() if time > tallest and _is_culprit(node, nodes, runs, poor, settings)]
    usual = _at(finished, 0.5) if finished else None
    return Judgement(
        bad=tuple(_bad_node(node, poor[node], usual) for node in sorted(bad)),
        undecided=tuple(sorted(poor.keys() - set(bad))),
        usual_s=usual,
    )


def best_of_nodes(nodes: Sequence[int], runs: Sequence[PairRun]) -> dict[int, float]:
    """The best time of each node; infinite for one that failed in all its runs. Who had none is left out."""
    best: dict[int, float] = {}
    for run in runs:
        for member in run.members:
            best[member] = min(best.get(member, inf), inf if run.seconds is None else run.seconds)
    return {node: best[node] for node in nodes if node in best}


def _at(finished: Sequence[float], share: float) -> float:
    """The lower quantile; 0 where none finished."""
    return finished[int((len(finished) - 1) * share)] if finished else 0.0


def _tallest_s(best: dict[int, float], runs: Sequence[PairRun], floor: float, settings: JudgeSettings) -> float:
    """What a healthy pair may take: ``floor``, or more where pairs without a node above it scatter widely."""
    within = [run.seconds for run in runs if run.seconds and all(best[member] <= floor for member in run.members)]
    if not within:
        return floor
    middle = median(within)
    return max(floor, middle + settings.z * SIGMA_OF_MAD * median(abs(time - middle) for time in within))


def _is_culprit(
    node: int, nodes: Sequence[int], runs: Sequence[PairRun], poor: dict[int, float], settings: JudgeSettings
) -> bool:
    """A poor node is a victim unless one of its partners did well without it."""
    own = [run for run in runs if node in run.members]
    needed = settings.min_failures if poor[node] == inf else settings.min_slow_runs
    return len(own) >= min(needed, max(2, len(nodes) - 1)) and any(
        partner not in poor for run in own for partner in run.members
    )


def _bad_node(node: int, time: float, usual: float | None) -> BadNode:
    failed = time == inf
    return BadNode(node=node, failed=failed, ratio=None if failed or usual is None else time / usual)


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
