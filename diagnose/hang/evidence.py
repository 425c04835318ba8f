"""Evidence of a stalled job: one record for each rank, from any source.

    flight-recorder dumps  -----------------.
    state pages, stacks, logs of a spool  --+-->  HangEvidence  --judge-->  HangVerdict
    the same, as the agents stored them  ---|
    logs, NCCL RAS, Inspector, stacks  -----'  (``sources/``: several at once are combined)

A rank's *fronts* are its progress in each group: ``entered`` operations were issued by its host, ``completed`` ones
have ended. Those between the two are *pending*. Numbers count from 1 in a group, and are equal on all members.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from diagnose.model.outages import Outage, Patience
from diagnose.settings import USUAL, DetectorSettings
from telemetry.topology import Topology

WHOLE_GROUP = -1
NAMELESS = "collective"
"""An operation without further details."""
NS_PER_S = 1_000_000_000
NO_PATIENCE = Patience()


class Process(StrEnum):
    """State of the rank's process when the evidence was taken."""

    ALIVE = "alive"
    STOPPED = "stopped"
    """A signal such as SIGSTOP, or a debugger, stopped it."""
    DEAD = "dead"
    ENDED = "ended"
    """It stopped recording normally."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """The links of the job's hosts. By default, nothing is known about them."""

    outages: tuple[Outage, ...] = ()
    patience: Patience = NO_PATIENCE
    settings: DetectorSettings = USUAL
    seen_ns: int = 0
    """Wall clock of the newest record of the job. 0 if it is not known: then the time of the evidence is used."""
    gave_up: bool = False
    """Whether ranks ended with an error, or died, since the stall began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CutOff:
    """A host without its link, and what that means for the job."""

    outage: Outage
    ranks: tuple[int, ...]
    """The ranks of the host."""
    down_s: float
    """How long the link is down so far, or was down until it came back."""
    is_flap: bool
    """Whether the link may come back, or is back, before the job gives up."""


NO_NEWS = Network()


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Ranks that communicate together."""

    name: str
    """Short, for people: ``tp``, ``pp 0-4``, or the description the job gave."""
    members: tuple[int, ...]
    """Global ranks, in the group's order."""
    complete: bool = True
    """Whether ``members`` is known to be all of them; else they are those with records."""
    uid: str = ""
    """The name that torch, or NCCL, gives the group; empty when not known. Several sources use the same one."""
    places: tuple[int, ...] = ()
    """Position of each of ``members`` in the whole group, if some members are not known. Empty: not known."""


@dataclass(slots=True, eq=False)
class GroupTable:
    """All groups of a job. A group is added once, by its key."""

    groups: list[Group] = field(default_factory=list)
    index: dict[tuple[str, tuple[int, ...]], int] = field(default_factory=dict)

    def add(self, group: Group, key: tuple[str, tuple[int, ...]]) -> int:
        """Index of the group."""
        if key not in self.index:
            self.index[key] = len(self.groups)
            self.groups.append(group)
        return self.index[key]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """An operation that was issued and has not ended."""

    group: int
    """Index into :attr:`HangEvidence.groups`."""
    seq: int
    """Number of the operation, from 1: within its group, or for a transfer within its direction and peer."""
    op: str
    """``all_reduce``, ``send``, ``recv`` ..., without the backend's prefix."""
    is_transfer: bool = False
    """Between two ranks, not of the whole group."""
    peer: int = WHOLE_GROUP
    """Global rank of the other side of a transfer, if known."""
    signature: str = ""
    """Sizes and types, comparable between members; empty when not known."""
    usual: str = ""
    """Signature of the operation at the same place a step before; empty when not known."""
    since_ns: int = 0
    """Wall clock of the issue; 0 when not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A collective that has ended."""

    seq: int
    signature: str
    """Like the signature of a pending operation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """Progress of a rank in a group of collectives."""

    entered: int
    completed: int
    entered_ns: int = 0
    """Wall clock of the newest issue; 0 when not known. It gives the order of a rank's operations across groups."""
    least_entered: bool = False
    least_completed: bool = False
    """Whether the number is only a lower bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """A line that a healthy run does not print."""

    at_ns: int
    """Wall clock, as near as it is known."""
    fault: str
    """The known fault that it indicates; empty for none."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RankEvidence:
    """Evidence of one rank."""

    rank: int
    host: str = ""
    process: Process = Process.UNKNOWN
    living: Process = Process.UNKNOWN
    """The state when it was last seen alive."""
    died_ns: int = 0
    """Wall clock at which the end of the process was noticed; 0 when it was not."""
    ended_by: str = ""
    """``SIGKILL``, ``exit 1`` ...; empty when not known."""
    taken_ns: int = 0
    """Wall clock at which the evidence was taken; 0 when not known."""
    recorded: int = 0
    """Number of records that the rank had written at that time."""
    step: int = -1
    step_since_ns: int = 0
    """Wall clock at which ``step`` began; 0: the rank was not inside a step."""
    stage: str = ""
    """Label of the innermost open stage."""
    stage_since_ns: int = 0
    on_host: bool | None = None
    """Whether it is blocked outside of all communication, although transfers may be pending; None: not known."""
    fronts: Mapping[int, Front] = field(default_factory=dict)
    """Index of a group -> progress. Transfers are not counted here: they advance unevenly."""
    pending: tuple[Pending, ...] = ()
    """The oldest first: a later one may be queued behind it."""
    ended: Mapping[int, tuple[Ended, ...]] = field(default_factory=dict)
    """Index of a group -> the newest collectives that have ended, if known."""
    recorder: str = ""
    """The flight recorder that fronts and pending operations come from; empty for other sources."""
    stack: tuple[str, ...] = ()
    """Frames of the main thread, the innermost first: ``next_batch (loader.py:88)``."""
    log: tuple[LogLine, ...] = ()
    gave_no_answer: bool = False
    """Whether its process did not answer when it was asked for its state."""
    partial: bool = False
    """Whether it may wait in a group or transfer that the evidence does not show, although nothing is pending."""

    @property
    def moved_ns(self) -> int:
        """Wall clock of the newest known begin of anything on the rank; 0 when no times are known."""
        issued = (front.entered_ns for front in self.fronts.values())
        return max([self.stage_since_ns, *issued, *(op.since_ns for op in self.pending)])

    @property
    def is_dead(self) -> bool:
        return self.process is Process.DEAD

    @property
    def is_gone(self) -> bool:
        """Whether the process has died or ended."""
        return self.process in (Process.DEAD, Process.ENDED)

    @property
    def has_fault(self) -> bool:
        """Whether its log shows a known fault."""
        return any(line.fault for line in self.log)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One kind of evidence that a verdict uses."""

    name: str
    """``log``, ``flight recorder``, ``NCCL RAS`` ..."""
    ranks: tuple[int, ...]
    """The ranks that it shows anything of."""
    says: str = ""
    """The verdict of this source alone; empty if it is the only one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contradiction:
    """Two sources that disagree."""

    ranks: tuple[int, ...]
    """The ranks that they disagree on."""
    text: str
    apart: tuple[str, str] | None = None
    """The two sources, if only sources of different moments or jobs can disagree like this. Otherwise None."""
    is_certain: bool = False
    """Whether a single rank is enough to show this. Another rank may only have been read at another time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HangEvidence:
    """All ranks of one attempt at one moment."""

    world_size: int
    """0 when not known: then only the ranks with evidence are known."""
    groups: tuple[Group, ...]
    ranks: Mapping[int, RankEvidence]
    topology: Topology | None = None
    run_id: str = ""
    attempt: int = 0
    taken_ns: int = 0
    """Wall clock at which the evidence was taken; 0 when not known."""
    has_ended: bool = False
    """Whether no rank of the job is alive."""
    ended_ns: int = 0
    """Wall clock at which the end of the last rank was noticed; 0 when not known."""
    network: Network = NO_NEWS
    notes: tuple[str, ...] = ()
    """Problems of the evidence itself: unreadable files, unknown versions."""
    guessed_size: bool = False
    """Whether ``world_size`` is only the highest rank that is named, plus one. Then ranks may be missing unnoticed."""
    may_move: bool = False
    """Whether counts were read once, of a job that may move. Then a rank that is late may only be slower."""
    sources: tuple[Source, ...] = ()
    contradictions: tuple[Contradiction, ...] = ()

    @property
    def is_partial(self) -> bool:
        """Whether some rank is known in part only. Then a rank that is late may be a victim, too."""
        return any(of_rank.partial for of_rank in self.ranks.values())

    @property
    def hidden_waits(self) -> frozenset[int]:
        """Ranks that may wait for a rank without full evidence, in a group whose members no source lists."""
        whole = {rank for rank, of_rank in self.ranks.items() if not of_rank.partial}
        if whole.issuperset(range(self.world_size)) and not self.guessed_size:
            return frozenset()
        return frozenset(
            rank for rank in whole if any(not self.groups[index].complete for index in self.ranks[rank].fronts)
        )

    def tense(self, present: str, past: str) -> str:
        """``past`` for a job that has ended, else ``present``."""
        return past if self.has_ended else present

    @property
    def moved_ns(self) -> int:
        """Wall clock of the newest begin of anything on any rank; 0 when no times are known."""
        return max((evidence.moved_ns for evidence in self.ranks.values()), default=0)

    @property
    def still_s(self) -> float:
        """Seconds from ``moved_ns`` until the evidence was taken; 0 when no times are known."""
        return max(0, self.taken_ns - self.moved_ns) / NS_PER_S if self.taken_ns and self.moved_ns else 0.0

    @property
    def missing(self) -> tuple[int, ...]:
        """Ranks of the job without evidence."""
        return tuple(rank for rank in range(self.world_size) if rank not in self.ranks)
