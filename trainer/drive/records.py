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
    """More is better; 0: the check did not finish in time."""
    detail: str = ""
    killed: bool = False
    """Something else killed its process, such as the OOM killer. It shows nothing about the node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """The result of all checks of one node."""

    number: int
    """Of the round of checks: that of the order."""
    results: tuple[Measured, ...] = ()
    problem: str = ""
    """Why the checks could not run; empty if they ran."""
    killed: str = ""
    """Why there are no results: something else killed the command."""
    reached: tuple[str, ...] = ()
    """Nodes of the order that answered this node."""
    unreached: tuple[str, ...] = ()
    """Nodes of the order that did not answer this node."""

    @property
    def unknown(self) -> str:
        """What was killed, so that it shows nothing about the node; empty: nothing."""
        names = [f"{result.check} {result.subject}: {result.detail}" for result in self.results if result.killed]
        return self.killed or "; ".join(names)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccusedNode:
    """A node that was slow or failed with every partner of a paired test, while one of them did well without it."""

    index: int
    """In the test: that of the order."""
    failed: bool
    """No pair with it finished; otherwise it was slow."""
    ratio: float | None = None
    """Its best time divided by that of the usual node."""
    cause: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRun:
    """Two nodes that worked together in a paired test, by their index."""

    members: tuple[int, int]
    failed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PairReport:
    """The verdict of a paired test, as one node got it."""

    number: int
    """Of the test: that of the order."""
    problem: str = ""
    """Why this node has no verdict."""
    is_cut_off: bool = False
    """The problem is that the first node of the test did not answer."""
    is_killed: bool = False
    """The problem is that something else killed the command, such as the OOM killer."""
    accused: tuple[AccusedNode, ...] = ()
    absent: tuple[int, ...] = ()
    """Nodes that did not reach the first one in time."""
    runs: tuple[PairRun, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PairsOrder:
    """The part of a node in a paired test."""

    number: int
    """Differs for each test of the job."""
    endpoint: str
    """``host:port``, an address of the first node."""
    index: int
    """Of this node; 0: the first one, where the others meet."""
    nodes: int
    patience_s: float
    """How long the nodes wait for each other at the start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A rank that ended."""

    rank: int
    status: int
    """-n if signal n killed it."""
    at_s: float
    """When the executor saw it: wall clock of the node, seconds since the epoch."""
    reason: str = ""
    """What the rank said itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The state of one node."""

    node: str
    life: str
    """Differs for each process of an executor."""
    address: str = ""
    """Where other nodes reach this one; empty: all nodes are on one machine."""
    port: int = 0
    """A free port of this node, for the rendezvous of the ranks."""
    attempt: int = -1
    """The newest attempt that this executor has started; -1: none."""
    pids: dict[int, int] = field(default_factory=dict)
    """Rank -> pid of the ranks that have not ended."""
    stopped_s: dict[int, float] = field(default_factory=dict)
    """Rank -> seconds since a signal, such as SIGSTOP, was seen to have stopped its process."""
    ended: tuple[Ended, ...] = ()
    error: str = ""
    """Why the ranks could not be started."""
    no_checkpoint: bool = False
    """The error is that a rollback would leave no checkpoint. It is not the fault of a node."""
    checkpoint_problem: str = ""
    """Why ranks here could not write the newest checkpoint; empty if nothing is known to be wrong."""
    step: int = -1
    """The newest step of any rank here; -1 before the first."""
    stalled_s: float = 0.0
    """Seconds without progress since the stall was detected; 0: the ranks make progress."""
    keeper: str = ""
    """Address of the keeper of replicas; empty: the job keeps none."""
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
    """Where the ranks of a node send replicas, and find those of earlier attempts: addresses of keepers."""

    neighbour: str = ""
    keepers: tuple[str, ...] = ()
    forget: bool = False
    """Free the memory: this node does not train, and no rank needs its parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollback:
    """Checkpoints that no attempt may load, because the training went wrong before them."""

    attempt: int
    """Checkpoints of this attempt and of earlier ones,"""
    before_step: int
    """if this number of steps or more are done in them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What one node is to do from now on."""

    work: Work
    attempt: int = -1
    """To train, save or stop. An executor stops the ranks of every other attempt."""
    position: int = 0
    """Of this node among the nodes that train: its first rank is ``position * ranks_per_node``."""
    rendezvous: str = ""
    """``tcp://host:port``; empty: a file in the folder of the job."""
    check: int = 0
    """Number of the round of checks."""
    peers: dict[str, str] = field(default_factory=dict)
    """Some other nodes of the round -> their ``address:port``. Empty: all nodes are on one machine."""
    replicas: ReplicaOrder | None = None
    """None: the job keeps no replicas."""
    rollback: Rollback | None = None
    """The first node of the attempt takes these checkpoints out of use before it starts its ranks."""
    pairs: PairsOrder | None = None
    """The paired test of the round; None: the checks of the node itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a watcher found: a diagnosis as data. ``hosts``: the suspects, as nodes."""

    kind: str
    run_id: str
    attempt: int
    hosts: tuple[str, ...] = ()
    summary: str = ""
    active: bool = True
    """False: the problem is over."""
    first_step: int = -1
    """The first step with the problem; -1: unknown."""


class Action(StrEnum):
    """What an operator can request."""

    DRAIN = "drain"
    """Take a node out after a checkpoint."""
    REPLACE = "replace"
    """Drain a node, check it, and use a spare in its place."""
    PAUSE = "pause"
    RESUME = "resume"
    """Continue the job; or, with a node, let it in again after a check."""
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
    """By the driver's clock, which begins with its wall clock."""
    attempt: int
    name: str
    """Such as ``start``, ``suspect``, ``stop``, ``check``, ``block``, ``give-up``."""
    reason: str
    node: str = ""
