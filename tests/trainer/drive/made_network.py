"""A simulated network between nodes, and the result of ``rankscope doctor --pairs`` in it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from diagnose.nodecheck.pairs.plan import judge, pairs
from diagnose.nodecheck.pairs.records import PairedVerdict, verdict_object
from diagnose.nodecheck.pairs.records import PairRun as Run
from trainer.drive.node_check import read_verdict
from trainer.drive.records import PairReport
from trainer.json_records import encode

CUT_OFF = "status 3: no answer from node 0"


@dataclass(slots=True, kw_only=True)
class MadeNetwork:
    """Which nodes reach each other, and how slow each is."""

    unplugged: set[str] = field(default_factory=set)
    lossy: set[str] = field(default_factory=set)
    """Nodes that answer, but lose what is sent to them."""
    broken: set[frozenset[str]] = field(default_factory=set)
    """Pairs that do not reach each other, although each reaches others."""
    factors: dict[str, float] = field(default_factory=dict)
    jitter: Callable[[], float] = lambda: 1.0

    def reaches(self, a: str, b: str) -> bool:
        return self.answers(a, b) and not (a != b and self.lossy & {a, b})

    def answers(self, a: str, b: str) -> bool:
        return a == b or not (self.unplugged & {a, b} or frozenset((a, b)) in self.broken)

    def report(self, name: str, number: int, nodes: Sequence[str]) -> PairReport:
        """What a node reports about a test of ``nodes``."""
        if not self.reaches(nodes[0], name):
            return PairReport(number=number, problem=CUT_OFF, is_cut_off=True)
        return read_verdict(number, encode(verdict_object(self._verdict(nodes))).decode())

    def _verdict(self, nodes: Sequence[str]) -> PairedVerdict:
        present = [index for index, name in enumerate(nodes) if self.reaches(nodes[0], name)]
        runs = list[Run]()
        while planned := pairs(present, round := max((run.round for run in runs), default=-1) + 1, runs):
            runs += [
                Run(round=round, members=pair, seconds=self._seconds(*(nodes[at] for at in pair))) for pair in planned
            ]
        hosts = tuple(name if index in present else "" for index, name in enumerate(nodes))
        return PairedVerdict(hosts=hosts, runs=tuple(runs), judgement=judge(present, runs))

    def _seconds(self, a: str, b: str) -> float | None:
        slower = max(self.factors.get(a, 1.0), self.factors.get(b, 1.0))
        return slower * self.jitter() if self.reaches(a, b) else None
