"""A modelled fleet: the speed of each node, and the times that pairs of nodes measure."""

from collections.abc import Callable, Sequence

from diagnose.nodecheck.pairs.plan import Pair, judge, pairs
from diagnose.nodecheck.pairs.records import Judgement, PairRun

Jitter = Callable[[], float]


def run_test(factors: Sequence[float | None], jitter: Jitter) -> tuple[Judgement, list[PairRun]]:
    """Run the whole paired test on nodes with these factors of time. None: the node fails."""
    nodes, runs = range(len(factors)), list[PairRun]()
    round = 0
    while planned := pairs(nodes, round, runs):
        runs += [PairRun(round=round, members=pair, seconds=_seconds(factors, pair, jitter)) for pair in planned]
        round += 1
    return judge(nodes, runs), runs


def _seconds(factors: Sequence[float | None], pair: Pair, jitter: Jitter) -> float | None:
    slower = [factors[node] for node in pair]
    known = [factor for factor in slower if factor is not None]
    return max(known) * jitter() if len(known) == len(slower) else None
