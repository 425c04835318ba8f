"""The messages between driver, executors, watcher and operators, as JSON.

executor --- Report, twice a second ---> driver
executor <--- Order, the answer --------
watcher  --- Finding ------------------> driver
operator --- Request ------------------>

Reports and orders hold the whole state, not changes. So a lost message, or a driver that was killed, needs no repair.
"""

from dataclasses import dataclass, field
from enum import StrEnum


class Work(StrEnum):
    """What a node is to do, or does."""

    IDLE = "idle"
    TRAIN = "train"
    SAVE = "save"
    """Train until the end of the step, write a checkpoint, end the ranks."""
    STOP = "stop"
    """End the ranks at once."""
    CHECK = "check"
    LEAVE = "leave"
    """End the executor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One result of a node check. ``failed``: wrong data or an error."""

    check: str
    subject: str
    failed: bool
    measured: str = ""
    """Name of ``value``, with its unit."""
    value: float | None = None
    """Larger is better. 0 if the check did not finish in time, None if there is no value."""
    detail: str = ""
    killed: bool = False
    """Whether something else, such as the OOM killer, killed the process of the check. The result shows nothing about
    the node then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """The result of all checks of one node."""

    number: int
    """Number of the round of checks, from the order."""
    results: tuple[Measured, ...] = ()
    problem: str = ""
    """Why the checks could not run; empty if they ran."""
    killed: str = ""
    """How something else killed the command, so that there are no results; empty if nothing did."""
    reached: tuple[str, ...] = ()
    """Nodes of the order that answered this node."""
    unreached: tuple[str, ...] = ()
    """Nodes of the order that did not answer this node."""

    @property
    def unknown(self) -> str:
        """What something else killed, so that it shows nothing about the node; empty if nothing was killed."""
        names = [f"{result.check} {result.subject}: {result.detail}" for result in self.results if result.killed]
        return self.killed or "; ".join(names)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccusedNode:
    """A node that was slow or failed with every partner in a paired test, while a partner did well without it."""

    index: int
    """Index of the node in the test, from the order."""
    failed: bool
    """Whether no pair with the node finished. If False, the node was slow."""
    ratio: float | None = None
    """Its best time divided by that of the usual node."""
    cause: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRun:
    """A run of two nodes in a paired test, by their index."""

    members: tuple[int, int]
    failed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PairReport:
    """The verdict of a paired test, as one node received it."""

    number: int
    """Number of the test, from the order."""
    problem: str = ""
    """Why this node has no verdict; empty if it has one."""
    is_cut_off: bool = False
    """Whether the problem is that the first node of the test did not answer."""
    is_killed: bool = False
    """Whether the problem is that something else, such as the OOM killer, killed the command."""
    accused: tuple[AccusedNode, ...] = ()
    absent: tuple[int, ...] = ()
    """Indexes of nodes that did not reach the first node in time."""
    runs: tuple[PairRun, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PairsOrder:
    """The part of a node in a paired test."""

    number: int
    """Differs for each test of the job."""
    endpoint: str
    """``host:port``, an address of the first node."""
    index: int
    """Index of this node. Index 0 is the first node, to which the others connect."""
    nodes: int
    patience_s: float
    """How long the nodes wait for each other at the start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A rank that ended."""

    rank: int
    status: int
    """Exit status; -n if signal n killed the rank."""
    at_s: float
    """When the executor noticed the end, by the wall clock of the node in seconds since the epoch."""
    reason: str = ""
    """The reason that the rank itself reported; empty if it reported none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The state of one node."""

    node: str
    life: str
    """Differs for each process of an executor."""
    address: str = ""
    """The address at which other nodes reach this node; empty if all nodes are on one machine."""
    port: int = 0
    """A free port of this node, for the rendezvous of the ranks."""
    attempt: int = -1
    """The newest attempt that this executor has started, or could not start; -1 if there is none."""
    pids: dict[int, int] = field(default_factory=dict)
    """Rank -> pid of the ranks that have not ended."""
    stopped_s: dict[int, float] = field(default_factory=dict)
    """Rank -> seconds since a signal, such as SIGSTOP, was seen to have stopped its process."""
    ended: tuple[Ended, ...] = ()
    error: str = ""
    """Why the ranks could not be started; empty if they could."""
    no_checkpoint: bool = False
    """Whether the error is that a rollback would leave no checkpoint. No node is at fault then."""
    checkpoint_problem: str = ""
    """Why ranks of this node could not write the newest checkpoint; empty if no problem is known."""
    step: int = -1
    """The newest step of any rank on this node; -1 before the first."""
    stalled_s: float = 0.0
    """Seconds without progress since a stall was detected; 0 if the ranks make progress."""
    keeper: str = ""
    """Address of the keeper of replicas; empty if the job keeps no replicas."""
    check: CheckReport | None = None
    """The newest finished round of checks."""
    pairs: PairReport | None = None
    """The newest finished paired test."""
    leaving: bool = False

    @property
    def living(self) -> int:
        """Number of ranks that have not ended."""
        return len(self.pids)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaOrder:
    """The addresses of keepers to which the ranks of a node send replicas (``neighbour``), and from which they load
    replicas of earlier attempts (``keepers``)."""

    neighbour: str = ""
    keepers: tuple[str, ...] = ()
    forget: bool = False
    """Whether to free the memory, because this node does not train and no rank needs the parts that it holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollback:
    """Checkpoints that no attempt may load, because the training went wrong before them."""

    attempt: int
    """Checkpoints of this attempt and of earlier attempts are affected."""
    before_step: int
    """Checkpoints with this number of completed steps or more are affected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What one node is to do from now on."""

    work: Work
    attempt: int = -1
    """The attempt to train, save or stop. An executor stops the ranks of every other attempt."""
    position: int = 0
    """Position of this node among the nodes that train. Its first rank is ``position * ranks_per_node``."""
    rendezvous: str = ""
    """``tcp://host:port``; empty if the rendezvous is a file in the folder of the job."""
    check: int = 0
    """Number of the round of checks."""
    peers: dict[str, str] = field(default_factory=dict)
    """Some other nodes of the round -> their ``address:port``. Empty if all nodes are on one machine."""
    replicas: ReplicaOrder | None = None
    """None if the job keeps no replicas."""
    rollback: Rollback | None = None
    """The first node of the attempt takes these checkpoints out of use before it starts its ranks."""
    pairs: PairsOrder | None = None
    """The paired test to take part in; None if the node is to check itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A finding that a watcher sends. ``hosts``: the names of the suspected nodes."""

    kind: str
    run_id: str
    attempt: int
    hosts: tuple[str, ...] = ()
    summary: str = ""
    active: bool = True
    """False if the problem is over."""
    first_step: int = -1
    """The first step with the problem; -1 if it is unknown."""


class Action(StrEnum):
    """What an operator can request."""

    DRAIN = "drain"
    """Take a node out after a checkpoint."""
    REPLACE = "replace"
    """Drain a node, check it, and use a spare in its place."""
    PAUSE = "pause"
    RESUME = "resume"
    """Continue the job. With a node: let the node train again after a check."""
    END = "end"
    """Save a checkpoint and end the job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request of an operator."""

    action: Action
    node: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What the driver decided, and why."""

    at_ns: int
    """Time by the ``steady_clock`` of the driver (``driver.py``)."""
    attempt: int
    name: str
    """Such as ``start``, ``suspect``, ``stop``, ``check``, ``block``, ``give-up``."""
    reason: str
    node: str = ""
