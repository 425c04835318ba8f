"""The state of a driven job: what the driver keeps on disk, and shows to operators."""

from dataclasses import dataclass, field
from enum import StrEnum

from trainer.drive.records import CheckReport, PairReport, PairsOrder, Report, Rollback


class NodeState(StrEnum):
    """State of a node."""

    NEW = "new"
    """It waits for its first check."""
    SUSPECT = "suspect"
    """It may be the cause of a fault, and waits for a check."""
    READY = "ready"
    """It can train."""
    ACTIVE = "active"
    """It trains."""
    BLOCKED = "blocked"
    """It failed a check. Only an operator lets it in again."""
    DRAINED = "drained"
    """An operator took it out."""
    LOST = "lost"
    """It does not report."""


class Phase(StrEnum):
    """Phase of the job."""

    GATHER = "gather"
    """It waits for nodes and their checks."""
    TRAIN = "train"
    SAVE = "save"
    """It writes a checkpoint, and then stops."""
    STOP = "stop"
    PAUSED = "paused"
    DONE = "done"
    GAVE_UP = "gave-up"
    ENDED = "ended"
    """A signal or an operator ended it."""

    @property
    def is_over(self) -> bool:
        return self in (Phase.DONE, Phase.GAVE_UP, Phase.ENDED)


@dataclass(slots=True, kw_only=True)
class Node:
    """One node."""

    name: str
    state: NodeState = NodeState.NEW
    reason: str = ""
    """Why the node is in its state."""
    heard_s: float = 0.0
    """When the newest report arrived."""
    report: Report | None = None
    num_faults: int = 0
    num_slow: int = 0
    """Rounds of checks in a row in which the node was slow."""

    def result_of(self, number: int) -> CheckReport | None:
        """The result of the node in a round of checks; None while there is none."""
        found = self.report.check if self.report else None
        return found if found is not None and found.number == number else None

    def verdict_of(self, number: int) -> PairReport | None:
        """The result of a paired test on the node; None while there is none."""
        found = self.report.pairs if self.report else None
        return found if found is not None and found.number == number else None

    @property
    def has_ranks(self) -> bool:
        """Whether ranks live on it, as far as it has reported."""
        return self.report is not None and self.report.living > 0


@dataclass(slots=True, kw_only=True)
class PairedTest:
    """A paired test of the network between nodes."""

    number: int
    nodes: tuple[str, ...]
    """The nodes of the test. All others connect to the first node."""
    endpoint: str
    since_s: float
    patience_s: float = 30.0
    """How long the nodes wait for each other at the start. Files of older versions lack it."""
    verdicts: dict[str, PairReport] = field(default_factory=dict)
    """Node -> its result, once the test is over."""

    def order_for(self, name: str) -> PairsOrder:
        """The part of a node in the test."""
        return PairsOrder(
            number=self.number,
            endpoint=self.endpoint,
            index=self.nodes.index(name),
            nodes=len(self.nodes),
            patience_s=self.patience_s,
        )


@dataclass(slots=True, kw_only=True)
class Round:
    """Checks of several nodes at the same time, and then paired tests of those that passed."""

    number: int
    nodes: tuple[str, ...]
    """The nodes of the round, without nodes that were lost since it began."""
    since_s: float
    patience_s: float = 0.0
    """How long the nodes wait for each other in a paired test. It is set when the nodes have checked themselves."""
    tests: list[PairedTest] = field(default_factory=list)
    """Paired tests. The last test runs, the earlier tests are over. While there is none, the nodes check themselves."""


@dataclass(slots=True, kw_only=True)
class Job:
    """The whole state of a driven job. Times are those of ``steady_clock`` (``driver.py``)."""

    run_id: str
    started_ns: int = 0
    """When the command that drives the job was started. A later command begins a job again that is over."""
    num_steps: int = 0
    phase: Phase = Phase.GATHER
    since_s: float = 0.0
    reason: str = ""
    """Why the job is in its phase."""
    after_stop: Phase = Phase.GATHER
    attempt: int = -1
    members: tuple[str, ...] = ()
    """Names of the nodes of the attempt, by position."""
    rendezvous: str = ""
    nodes: dict[str, Node] = field(default_factory=dict)
    round: Round | None = None
    num_rounds: int = 0
    num_tests: int = 0
    """Paired tests so far."""
    best_step: int = -1
    num_failures: int = 0
    """Attempts in a row that ended without a new step."""
    failed_s: float | None = None
    """When a rank of this attempt was first reported as failed."""
    has_waited: bool = False
    """Whether the decision to wait for nodes was recorded."""
    rollback: Rollback | None = None
    """The newest rollback. It stays, because a later attempt may be the first that can carry it out."""
    num_rollbacks: int = 0
    """Rollbacks in a row about steps that the job had reached before."""
    reached_step: int = -1
    """The best step at the newest rollback."""
    advised: list[str] = field(default_factory=list)
    """Findings that were recorded as advice."""
    flaps: list[tuple[str, float]] = field(default_factory=list)
    """Link losses: node and time."""

    @property
    def outline(self) -> tuple[object, ...]:
        """What the next driver must know, besides what nodes report again."""
        states = tuple((node.name, node.state, node.num_slow) for node in self.nodes.values())
        return (
            self.phase,
            self.after_stop,
            self.attempt,
            self.num_rounds,
            self.num_tests,
            self.round is None,
            self.num_failures,
            self.rollback,
            states,
        )

    def begin_waits(self, now_s: float) -> None:
        """Begin all time limits again: nothing was received while no driver ran."""
        self.since_s = now_s
        if self.failed_s is not None:
            self.failed_s = now_s
        for node in self.nodes.values():
            node.heard_s = now_s
        if self.round is not None:
            self.round.since_s = now_s
            for test in self.round.tests:
                test.since_s = now_s

    def in_state(self, *states: NodeState) -> list[Node]:
        """Nodes of these states."""
        return [node for node in self.nodes.values() if node.state in states]

    def member_nodes(self) -> list[Node]:
        """Nodes of the attempt, by position."""
        return [self.nodes[name] for name in self.members]

    def has_replaced(self, name: str, attempt: int) -> bool:
        """Whether the ranks of ``attempt`` on a node are no longer part of the job."""
        node = self.nodes.get(name)
        return self.attempt > attempt or node is None or node.state is NodeState.LOST

    def trains(self, node: Node) -> bool:
        """Whether ranks of the attempt are to live on ``node``."""
        return self.phase in (Phase.TRAIN, Phase.SAVE) and node.state is NodeState.ACTIVE
