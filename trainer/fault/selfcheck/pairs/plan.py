"""Who works with whom in the next round. Pure.

Two rounds for an even number of nodes: neighbours, then the slowest with the fastest. With an odd number one node sits
out each round, never the same twice before the others have, and there are three rounds, so that all are heard twice.
More, while somebody remains undecided and there are partners left whom he has not met.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from math import inf

from trainer.fault.selfcheck.pairs.judge import JudgeSettings, best_s, judge
from trainer.fault.selfcheck.pairs.records import PairRun

Pair = tuple[int, int]
Met = set[frozenset[int]]
MAX_ROUNDS = 6
MAX_TRIES = 10_000
"""Before a round is given up that would have each node meet a new partner."""


def pairs(
    nodes: Sequence[int], round: int, results: Sequence[PairRun], settings: JudgeSettings | None = None
) -> tuple[Pair, ...]:
    """The pairs of ``round`` (from 0), given all earlier results; none when the test is over."""
    if len(nodes) < 2 or round >= MAX_ROUNDS or _is_over(nodes, round, results, settings):
        return ()
    if round == 0:
        return tuple(zip(nodes[::2], nodes[1::2], strict=False))
    met = {frozenset(run.members) for run in results}
    for absentee in _sitting_out(nodes, results):
        found = _matched(
            _slowest_first([node for node in nodes if node != absentee], results), met, iter(range(MAX_TRIES))
        )
        if found is not None:
            return found
    return ()


def _is_over(
    nodes: Sequence[int], round: int, results: Sequence[PairRun], settings: JudgeSettings | None = None
) -> bool:
    """Between four nodes a third round meets every pair there is; it tells two bad ones from two good ones."""
    needed = 3 if len(nodes) % 2 or len(nodes) == 4 else 2
    return round >= needed and not judge(nodes, results, settings).undecided


def _slowest_first(nodes: Sequence[int], results: Sequence[PairRun]) -> list[int]:
    """Who was never heard comes before all others."""
    times = {node: best_s(node, results) for node in nodes}
    return sorted(nodes, key=lambda node: (-(inf if times[node] is None else 0), -(times[node] or 0), node))


def _sitting_out(nodes: Sequence[int], results: Sequence[PairRun]) -> list[int | None]:
    """Candidates to sit out, the best first: who has played most, and of these the fastest. None: nobody has to."""
    if len(nodes) % 2 == 0:
        return [None]
    played = Counter(member for run in results for member in run.members)
    fastest_first = _slowest_first(nodes, results)[::-1]
    return list(sorted(fastest_first, key=lambda node: -played[node]))


def _matched(order: Sequence[int], met: Met, budget: Iterator[int]) -> tuple[Pair, ...] | None:
    """The first of ``order`` with the last that it has not met, then the rest in the same way; None: there is no way,
    or none was found within the budget of tries."""
    if not order:
        return ()
    first, others = order[0], order[1:]
    for partner in reversed(others):
        if frozenset((first, partner)) in met or next(budget, None) is None:
            continue
        rest = _matched([node for node in others if node != partner], met, budget)
        if rest is not None:
            return ((first, partner), *rest)
    return None
