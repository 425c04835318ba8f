"""Who works with whom in the next round. Pure.

Two rounds for an even number of nodes: neighbours, then the slowest with the fastest. With an odd number one node sits
out each round, never the same twice before the others have, and there are three rounds, so that all are heard twice.
More, while somebody remains undecided and there are partners left whom he has not met.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from diagnose.nodecheck.pairs.judge import JudgeSettings, best_of_nodes, judge
from diagnose.nodecheck.pairs.records import PairRun

Pair = tuple[int, int]
Met = set[frozenset[int]]
MAX_ROUNDS = 6
MAX_TRIES = 10_000
"""Beside one for each node: before a round is given up that would have each node meet a new partner."""


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
            _slowest_first([node for node in nodes if node != absentee], results),
            met,
            iter(range(MAX_TRIES + len(nodes))),
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
    times = best_of_nodes(nodes, results)
    return sorted(nodes, key=lambda node: (node in times, -times.get(node, 0.0), node))


def _sitting_out(nodes: Sequence[int], results: Sequence[PairRun]) -> list[int | None]:
    """Candidates to sit out, the best first: who has played most, and of these the fastest. None: nobody has to."""
    if len(nodes) % 2 == 0:
        return [None]
    played = Counter(member for run in results for member in run.members)
    fastest_first = _slowest_first(nodes, results)[::-1]
    return [*sorted(fastest_first, key=lambda node: -played[node])]


def _matched(order: Sequence[int], met: Met, budget: Iterator[int]) -> tuple[Pair, ...] | None:
    """The first of ``order`` with the last that it has not met, then the rest in the same way; None: there is no way,
    or none was found within the budget of tries.

    left      [a b c d]  ->  [b c]  ->  []      who has no partner yet, after each pair
    partners  of a: d, c     of b: c            those still to be tried for the first of them
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
