"""Evidence of a stalled job: one record for each rank, from any source.

    flight-recorder dumps  -----------------.
    state pages, stacks, logs of a spool  --+-->  HangEvidence  --judge.py-->  HangVerdict
    the same, as the agents stored them  ---'

A rank's *fronts* say how far it has come in each group: ``entered`` operations were issued by its host, ``completed``
ones have ended. What lies between is *pending*. Numbers count from 1 within a group and are the same on all members.

Also here: the flight recorders used, in words, and stacks merged over ranks.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from diagnose.hang.network import Network
from diagnose.ranges import fold_ranks
from telemetry.topology import Topology

WHOLE_GROUP = -1
NO_NEWS = Network()
NS_PER_S = 1_000_000_000


class Process(StrEnum):
    """What the rank's process was doing when it was looked at."""

    ALIVE = "alive"
    STOPPED = "stopped"
    """By SIGSTOP or a debugger."""
    DEAD = "dead"
    ENDED = "ended"
    """It stopped recording in good order."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Ranks that communicate together."""

    name: str
    """Short, for people: ``tp``, ``pp 0-4``, or the description the job gave."""
    members: tuple[int, ...]
    """Global ranks, in the group's order."""
    complete: bool = True
    """Whether ``members`` is known to be all of them; else only those that were seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """An operation that was issued and has not ended."""

    group: int
    """Index into :attr:`HangEvidence.groups`."""
    seq: int
    """From 1, within the group; of a transfer, within its direction and peer."""
    op: str
    """``all_reduce``, ``send``, ``recv`` ..., without the backend's prefix."""
    is_transfer: bool = False
    """Between two ranks, not of the whole group."""
    peer: int = WHOLE_GROUP
    """Global rank of the other side of a transfer, where it is known."""
    signature: str = ""
    """Sizes and types, comparable between members; empty when not known."""
    usual: str = ""
    """The signature of what the rank issued at the same place a step before; empty when not known."""
    since_ns: int = 0
    """Wall clock of the issue; 0 when not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A collective that has ended."""

    seq: int
    signature: str
    """As of a pending one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """How far a rank has come in a group of collectives."""

    entered: int
    completed: int
    entered_ns: int = 0
    """Wall clock of the newest issue; 0 when not known. It tells in which order a rank went through its groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """A line that a healthy run does not print."""

    at_ns: int
    """Wall clock, as near as it is known."""
    fault: str
    """Which known fault it is a sign of; empty for none."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RankEvidence:
    """What one rank left."""

    rank: int
    host: str = ""
    process: Process = Process.UNKNOWN
    living: Process = Process.UNKNOWN
    """The same when it was last seen alive."""
    died_ns: int = 0
    """Wall clock at which the process was seen to end; 0 when it was not."""
    ended_by: str = ""
    """``SIGKILL``, ``exit 1`` ...; empty when not known."""
    taken_ns: int = 0
    """Wall clock of the look; 0 when not known."""
    recorded: int = 0
    """Records written by then."""
    step: int = -1
    step_since_ns: int = 0
    """Wall clock at which ``step`` began; 0: the rank was not inside a step."""
    stage: str = ""
    """Label of the innermost open stage."""
    stage_since_ns: int = 0
    on_host: bool | None = None
    """Whether it stands outside of all communication, though transfers of its may be pending; None: not known."""
    fronts: Mapping[int, Front] = field(default_factory=dict)
    """By group; point-to-point traffic is not counted here, it advances unevenly."""
    pending: tuple[Pending, ...] = ()
    """The oldest first: a later one may stand behind it."""
    ended: Mapping[int, tuple[Ended, ...]] = field(default_factory=dict)
    """By group: the newest that have ended, as far as they are known."""
    recorder: str = ""
    """The flight recorder that fronts and pending operations come from; empty where they come from elsewhere."""
    stack: tuple[str, ...] = ()
    """Frames of the main thread, the innermost first: ``next_batch (loader.py:88)``."""
    log: tuple[LogLine, ...] = ()

    @property
    def moved_ns(self) -> int:
        """Wall clock of the newest thing that the rank is known to have begun; 0 when no times are known."""
        issued = (front.entered_ns for front in self.fronts.values())
        return max([self.stage_since_ns, *issued, *(op.since_ns for op in self.pending)])


@dataclass(frozen=True, slots=True, kw_only=True)
class HangEvidence:
    """All ranks of one attempt at one moment."""

    world_size: int
    """0 when nothing told it: then the ranks that are there are all that is known of."""
    groups: tuple[Group, ...]
    ranks: Mapping[int, RankEvidence]
    topology: Topology | None = None
    run_id: str = ""
    attempt: int = 0
    taken_ns: int = 0
    """Wall clock of the look; 0 when not known."""
    has_ended: bool = False
    """Whether no rank of the job lives any more."""
    ended_ns: int = 0
    """Wall clock at which the last of them was seen to have ended; 0 when not known."""
    network: Network = NO_NEWS
    notes: tuple[str, ...] = ()
    """What was wrong with the evidence itself: files that could not be read, versions not met before."""

    def tense(self, present: str, past: str) -> str:
        """The words for a job that lives, or for one that has ended."""
        return past if self.has_ended else present

    @property
    def moved_ns(self) -> int:
        """Wall clock at which the last of all ranks began anything; 0 when no times are known."""
        return max((one.moved_ns for one in self.ranks.values()), default=0)

    @property
    def still_s(self) -> float:
        """Seconds from then to the look; 0 when no times are known."""
        return max(0, self.taken_ns - self.moved_ns) / NS_PER_S if self.taken_ns and self.moved_ns else 0.0

    @property
    def missing(self) -> tuple[int, ...]:
        """Ranks of the job that left nothing."""
        return tuple(rank for rank in range(self.world_size) if rank not in self.ranks)


_FILE = "file:"
MOST_NAMED = 8
"""There are four; the names come from outside."""


def recorders_of(evidence: HangEvidence) -> list[str]:
    """One line a recorder: ``dump_nccl_trace_json of ranks 0-15``. Files of torch's count as one."""
    ranks: dict[str, list[int]] = defaultdict(list)
    for rank, one in evidence.ranks.items():
        if one.recorder:
            ranks["torch files" if one.recorder.startswith(_FILE) else one.recorder].append(rank)
    named = sorted(ranks.items())[:MOST_NAMED]
    return [f"{name} of {'rank' if len(told) == 1 else 'ranks'} {fold_ranks(told)}" for name, told in named]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldedStack:
    """A stack and who stands in it."""

    frames: tuple[str, ...]
    """The innermost first."""
    ranks: tuple[int, ...]


def fold_stacks(evidence: HangEvidence) -> tuple[FoldedStack, ...]:
    """The stacks of ``evidence``, the rarest first: among many that wait, it is the odd one that matters."""
    ranks_of: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for rank, one in sorted(evidence.ranks.items()):
        if one.stack:
            ranks_of[one.stack].append(rank)
    folded = [FoldedStack(frames=frames, ranks=tuple(ranks)) for frames, ranks in ranks_of.items()]
    return tuple(sorted(folded, key=lambda stack: (len(stack.ranks), stack.ranks)))
