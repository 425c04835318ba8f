"""Nodes without processes. They obey the orders of the policy. The test moves the clock."""

from dataclasses import dataclass, field, replace

from tests.trainer.drive.made_network import MadeNetwork
from trainer.drive.job import Job, NodeState, Phase
from trainer.drive.policy import Policy
from trainer.drive.records import CheckReport, Decision, Ended, Finding, Measured, Report, Request, Work
from trainer.drive.settings import DriveConfig

RANKS_PER_NODE = 2
STEP_S = 1.0


def two_ranks() -> dict[int, int]:
    return {rank: 4000 + rank for rank in range(RANKS_PER_NODE)}


@dataclass(slots=True)
class FakeNode:
    """A node that obeys."""

    name: str
    gflops: float = 100.0
    slow_checks: int = 0
    """The next checks of this number measure a third of ``gflops``."""
    broken: bool = False
    """Fails its checks."""
    killed: bool = False
    """Something kills its checks."""
    hangs: bool = False
    """Its checks do not end."""
    life: str = "first"
    silent: bool = False
    network: MadeNetwork | None = None
    """None: all nodes are on one machine."""
    report: Report = field(init=False)

    def __post_init__(self) -> None:
        address = f"10.0.0.{1 + int(self.name.removeprefix('node-'))}" if self.network else ""
        self.report = Report(node=self.name, life=self.life, address=address, port=29500)

    def obey(self, policy: Policy) -> None:
        order = policy.order(self.name)
        report = self.report
        if order.work is Work.TRAIN and report.attempt != order.attempt:
            report = replace(report, attempt=order.attempt, pids=two_ranks(), ended=(), stalled_s=0.0)
        elif order.work in (Work.STOP, Work.IDLE, Work.CHECK) and report.living:
            report = self._ended(report, -9)
        elif order.work is Work.SAVE and report.living:
            report = self._ended(report, 143)
        elif order.work is Work.LEAVE:
            report = replace(self._ended(report, 143), leaving=True)
        if order.pairs is not None and self.network is not None:
            assert policy.job.round is not None
            nodes = policy.job.round.tests[-1].nodes
            assert (nodes[order.pairs.index], len(nodes)) == (self.name, order.pairs.nodes)
            report = replace(report, pairs=self.network.report(self.name, order.pairs.number, nodes))
        elif order.work is Work.CHECK and not self.hangs and (not report.check or report.check.number != order.check):
            answers = {peer: self.network is None or self.network.answers(self.name, peer) for peer in order.peers}
            reached = tuple(peer for peer, is_reached in answers.items() if is_reached)
            unreached = tuple(peer for peer in answers if peer not in reached)
            report = replace(report, check=replace(self.checked(order.check), reached=reached, unreached=unreached))
        self.report = report

    def checked(self, number: int) -> CheckReport:
        value = self.gflops / 3 if self.slow_checks else self.gflops
        self.slow_checks = max(0, self.slow_checks - 1)
        if self.killed:
            return CheckReport(number=number, killed="the command was killed by SIGKILL")
        result = Measured(check="gemm", subject="cpu", failed=self.broken, measured="gemm_tflops", value=value)
        return CheckReport(number=number, results=(result,))

    def restart_executor(self) -> None:
        """Restart the executor. Its ranks end with it."""
        self.report = replace(Report(node=self.name, life=f"{self.report.life}, again"), address=self.report.address)

    def _ended(self, report: Report, status: int) -> Report:
        known = {rank.rank for rank in report.ended}
        new = [Ended(rank=rank, status=status, at_s=0.0) for rank in report.pids]
        return replace(report, pids={}, ended=(*report.ended, *(rank for rank in new if rank.rank not in known)))


class Cluster:
    """A job with its policy and nodes."""

    def __init__(
        self, num_nodes: int = 4, num_spares: int = 1, network: MadeNetwork | None = None, **settings: object
    ) -> None:
        self.now_s = 1000.0
        self.config = replace(DriveConfig(num_nodes=num_nodes, num_spares=num_spares), **settings)  # type: ignore[arg-type]
        self.policy = Policy(self.config, Job(run_id="run", num_steps=100, since_s=self.now_s))
        names = [f"node-{number}" for number in range(num_nodes + num_spares)]
        self.nodes = {name: FakeNode(name, network=network) for name in names}
        self.decisions: list[Decision] = []

    @property
    def job(self) -> Job:
        return self.policy.job

    @property
    def names(self) -> list[str]:
        """Names of the decisions so far."""
        return [decision.name for decision in self.decisions]

    def state(self, node: str) -> NodeState:
        return self.job.nodes[node].state

    def turn(self, seconds: float = 0.5) -> None:
        """Time passes, and every node reports and obeys once."""
        self.now_s += seconds
        self.decisions += self.policy.tick(self.now_s)
        for node in self.nodes.values():
            if not node.silent:
                self.decisions += self.policy.report(node.report, self.now_s)
                node.obey(self.policy)

    def until(self, phase: Phase, limit_s: float = 60.0) -> None:
        """Turn until the job is in ``phase``."""
        deadline_s = self.now_s + limit_s
        while self.job.phase is not phase:
            assert self.now_s < deadline_s, f"still {self.job.phase}: {self.job.reason}"
            self.turn()

    def train(self, attempt: int) -> None:
        """Turn until every member trains ``attempt``."""
        deadline_s = self.now_s + 120
        while not (
            self.job.phase is Phase.TRAIN
            and self.job.attempt == attempt
            and all(self.nodes[name].report.attempt == attempt for name in self.job.members)
        ):
            assert self.now_s < deadline_s, f"still {self.job.phase}: {self.job.reason}"
            self.turn()

    def step(self, number: int) -> None:
        """Every member reports that it is in this step."""
        for name in self.job.members:
            node = self.nodes[name]
            node.report = replace(node.report, step=number)
        self.turn()

    def end_ranks(self, node: str, *statuses: int, at_s: float = 0.0) -> None:
        """Ranks of a node end with these statuses."""
        report = self.nodes[node].report
        first = RANKS_PER_NODE * self.job.members.index(node)
        ended = tuple(Ended(rank=first + at, status=status, at_s=at_s) for at, status in enumerate(statuses))
        left = dict(list(report.pids.items())[len(ended) :])
        self.nodes[node].report = replace(report, pids=left, ended=ended)

    def find(self, kind: str, *hosts: str, attempt: int | None = None, **fields: object) -> None:
        """A finding arrives."""
        finding = Finding(
            kind=kind,
            run_id="run",
            attempt=self.job.attempt if attempt is None else attempt,
            hosts=hosts,
            summary=f"{kind} on {', '.join(hosts)}" if hosts else kind,
        )
        self.decisions += self.policy.find(replace(finding, **fields), self.now_s)  # type: ignore[arg-type]

    def ask(self, request: Request) -> None:
        """An operator asks."""
        self.decisions += self.policy.ask(request, self.now_s)
