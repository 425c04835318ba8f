"""Which nodes work together in the next round, and which nodes are bad. Pure.

Two rounds for an even number of nodes: neighbours, then the slowest with the fastest. With an odd number, one node sits
out each round, and no node sits out twice before all others have; three rounds, so that each node has two partners.
There are further rounds while a node is undecided and has new partners left.

A node's time is the best that it reached with any partner. A healthy node shows its own speed as soon as its partner is
healthy. So a slow pair makes both suspects, and a second pair clears one:

            round 0         round 1        best
    0    (0 1)  1.0 s    (0 3)  1.0 s      1.0
    1    (0 1)  1.0 s    (1 2)  3.1 s      1.0     victim of 2, cleared by round 0
    2    (2 3)  3.0 s    (1 2)  3.1 s      3.0     suspect: slow twice, and 1 is fast without it
    3    (2 3)  3.0 s    (0 3)  1.0 s      1.0     victim of 2, cleared by round 1

There are two limits. A node above 1.5 times the lower quartile is *undecided* and gets further partners: early on, bad
nodes and their victims can be more than half. A node above 1.5 times the lower median, and five deviations above pairs
without a suspect, is *bad*. So no node is bad if times scatter widely, or if more than half are slow: that is a mixed
fleet.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from math import inf
from statistics import median

from diagnose.nodecheck.pairs.records import SLOW_RATIO, BadNode, Judgement, PairRun

Pair = tuple[int, int]
Met = set[frozenset[int]]
MAX_ROUNDS = 6
MAX_TRIES = 10_000
"""Number of tries to find a round in which each node has a new partner, in addition to one for each node."""
SIGMA_OF_MAD = 1.4826
Z = 5.0
"""Robust standard deviations above the median of pairs without a suspect."""
MIN_FAILURES = 2
MIN_SLOW_RUNS = 3
"""A slow node counts as bad only after this number of runs. Fewer are sufficient if there are too few partners."""


def pairs(nodes: Sequence[int], round: int, results: Sequence[PairRun]) -> tuple[Pair, ...]:
    """The pairs of ``round`` (from 0) after all earlier results; none if the test is over."""
    if len(nodes) < 2 or round >= MAX_ROUNDS or _is_over(nodes, round, results):
        return ()
    if round == 0:
        return tuple(zip(nodes[::2], nodes[1::2], strict=False))
    met = {frozenset(run.members) for run in results}
    for absentee in _sitting_out(nodes, results):
        order = _slowest_first([node for node in nodes if node != absentee], results)
        found = _matched(order, met, iter(range(MAX_TRIES + len(nodes))))
        if found is not None:
            return found
    return ()


def _is_over(nodes: Sequence[int], round: int, results: Sequence[PairRun]) -> bool:
    """Whether no further round is needed. Four nodes need three rounds, which is every pair, to separate two bad nodes
    from two good ones."""
    needed = 3 if len(nodes) % 2 or len(nodes) == 4 else 2
    return round >= needed and not judge(nodes, results).undecided


def _slowest_first(nodes: Sequence[int], results: Sequence[PairRun]) -> list[int]:
    """``nodes`` from the slowest to the fastest. Nodes without a result come first."""
    times = best_of_nodes(nodes, results)
    return sorted(nodes, key=lambda node: (node in times, -times.get(node, 0.0), node))


def _sitting_out(nodes: Sequence[int], results: Sequence[PairRun]) -> list[int | None]:
    """Candidates to sit out: the most rounds first, then the fastest. None: no node has to."""
    if len(nodes) % 2 == 0:
        return [None]
    played = Counter(member for run in results for member in run.members)
    fastest_first = _slowest_first(nodes, results)[::-1]
    return [*sorted(fastest_first, key=lambda node: -played[node])]


def _matched(order: Sequence[int], met: Met, budget: Iterator[int]) -> tuple[Pair, ...] | None:
    """Pairs of all nodes: the first of ``order`` with the last that it has not met, then the rest in the same way. None
    if there is no solution, or none within the budget of tries.

    left      [a b c d]  ->  [b c]  ->  []      nodes without a partner, after each pair
    partners  of a: d, c     of b: c            partners left to try for the first of them
    """
    left, partners = [list(order)], list[Iterator[int]]()
    chosen: list[Pair] = []
    while left[-1]:
        first, *others = left[-1]
        if len(partners) < len(left):
            partners.append(reversed(range(len(others))))
        place = _next_unmet(first, others, partners[-1], met, budget)
        if place is not None:
            chosen.append((first, others[place]))
            left.append(others[:place] + others[place + 1 :])
            continue
        left.pop()
        partners.pop()
        if not chosen:
            return None
        chosen.pop()
    return tuple(chosen)


def _next_unmet(
    first: int, others: Sequence[int], places: Iterator[int], met: Met, budget: Iterator[int]
) -> int | None:
    for place in places:
        if frozenset((first, others[place])) not in met and next(budget, None) is not None:
            return place
    return None


def judge(nodes: Sequence[int], runs: Sequence[PairRun]) -> Judgement:
    """Find nodes that were slow or failed with every partner, if one of these partners did well without them."""
    best = best_of_nodes(nodes, runs)
    finished = sorted(time for time in best.values() if time < inf)
    poor = {node: time for node, time in best.items() if time > SLOW_RATIO * _at(finished, 0.25)}
    limit = _healthy_limit_s(best, runs, SLOW_RATIO * _at(finished, 0.5))
    bad = [node for node, time in poor.items() if time > limit and _is_culprit(node, nodes, runs, poor)]
    usual = _at(finished, 0.5) if finished else None
    return Judgement(
        bad=tuple(_bad_node(node, poor[node], usual) for node in sorted(bad)),
        undecided=tuple(sorted(poor.keys() - set(bad))),
        usual_s=usual,
    )


def best_of_nodes(nodes: Sequence[int], runs: Sequence[PairRun]) -> dict[int, float]:
    """The best time of each node; infinite if all its runs failed. Nodes without a run are left out."""
    best: dict[int, float] = {}
    for run in runs:
        for member in run.members:
            best[member] = min(best.get(member, inf), inf if run.seconds is None else run.seconds)
    return {node: best[node] for node in nodes if node in best}


def _at(finished: Sequence[float], share: float) -> float:
    """The lower quantile of the times, or 0 if no pair finished."""
    return finished[int((len(finished) - 1) * share)] if finished else 0.0


def _healthy_limit_s(best: dict[int, float], runs: Sequence[PairRun], floor: float) -> float:
    """The longest time of a healthy pair: ``floor``, or more if pairs without a node above it scatter widely."""
    within = [run.seconds for run in runs if run.seconds and all(best[member] <= floor for member in run.members)]
    if not within:
        return floor
    middle = median(within)
    return max(floor, middle + Z * SIGMA_OF_MAD * median(abs(time - middle) for time in within))


def _is_culprit(node: int, nodes: Sequence[int], runs: Sequence[PairRun], poor: dict[int, float]) -> bool:
    """Whether a poor node is bad. It can be a victim unless one of its partners did well without it."""
    own = [run for run in runs if node in run.members]
    needed = MIN_FAILURES if poor[node] == inf else MIN_SLOW_RUNS
    return len(own) >= min(needed, max(2, len(nodes) - 1)) and any(
        partner not in poor for run in own for partner in run.members
    )


def _bad_node(node: int, time: float, usual: float | None) -> BadNode:
    failed = time == inf
    return BadNode(node=node, failed=failed, ratio=None if failed or usual is None else time / usual)
