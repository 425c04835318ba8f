"""A fleet of nodes on paper: how fast each is, and what pairs of them would measure."""

from collections.abc import Callable, Sequence

from diagnose.nodecheck.pairs.plan import Pair, judge, pairs
from diagnose.nodecheck.pairs.records import Judgement, PairRun

Jitter = Callable[[], float]


def run_test(factors: Sequence[float | None], jitter: Jitter) -> tuple[Judgement, list[PairRun]]:
    """The whole test over nodes of these factors of time; None: a node that fails."""
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
