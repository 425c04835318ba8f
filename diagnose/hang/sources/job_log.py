"""What the log of a job shows about each rank. ``read_logs.py`` collects it.

While the job makes no progress, the counts of a rank in a group do not change. Its pending operations are between them:

    completed 7218  <  timed out 7219  <=  enqueued 7220

Other numbers show that the log holds several attempts, or several groups of one name (``GroupLog.is_mixed``). Reports
that are further apart than a timeout are of several stalls, too (``JobLog.is_mixed``).
"""

from dataclasses import dataclass, field, replace

from diagnose.hang.evidence import NAMELESS, NS_PER_S, LogLine
from diagnose.hang.sources.log_lines import TRANSFERS, LoggedWork
from telemetry.topology import MAX_RANKS

MAX_GROUPS = 4096
MAX_WORKS = 64
"""Operations kept of a group, those with the lowest numbers."""
MAX_LOGGED_RANKS = 100_000
UNLINKED = ""
"""Name of the group of operations whose group no line names (torch 2.1 and 2.2)."""
MIXED_NAMES = ("pp", "pipeline", "pipeline_model_parallel_group", "mesh_pp")
"""Descriptions of groups that carry transfers, whose counts are not comparable."""
ONE_STALL_NS = 900 * NS_PER_S
"""Reports of one stall are at most this far apart, or as far as the longest wait that they report."""


@dataclass(slots=True)
class GroupLog:
    """What a rank logged about one group."""

    desc: str = ""
    place: int = -1
    enqueued: int = -1
    completed: int = -1
    has_counts: bool = False
    works: dict[int, tuple[LoggedWork, int]] = field(default_factory=dict)
    """Number -> operation that timed out, and when that was reported."""
    counts_differ: bool = False

    def add_work(self, work: LoggedWork, at_ns: int, *, is_sure: bool = False) -> None:
        """Add an operation that timed out. ``is_sure``: a single line names the operation and its group."""
        known = self.works.get(work.seq)
        if known is None or (is_sure and known[0].op != work.op):
            self.works[work.seq] = (work, at_ns)
        if len(self.works) > MAX_WORKS:
            del self.works[max(self.works)]

    def add_counts(self, enqueued: int, completed: int) -> None:
        """Add the counts of a line. Counts with more completed than enqueued operations are ignored: torch 2.3 prints
        such counts if there was no operation."""
        enqueued, completed = max(enqueued, 0), max(completed, 0)
        if completed > enqueued:
            return
        self.counts_differ |= self.has_counts and (self.enqueued, self.completed) != (enqueued, completed)
        self.has_counts = True
        self.enqueued, self.completed = max(self.enqueued, enqueued), max(self.completed, completed)

    @property
    def has_transfers(self) -> bool:
        """Whether the group carries transfers, which are numbered separately."""
        return self.desc.lower() in MIXED_NAMES or any(work.op in TRANSFERS for work, _ in self.works.values())

    @property
    def is_mixed(self) -> bool:
        """Whether the numbers are not those of one stall in one group."""
        outside = self.has_counts and any(not self.completed < seq <= self.enqueued for seq in self.works)
        return not self.has_transfers and (self.counts_differ or outside)


@dataclass(slots=True)
class RankLog:
    """What the log shows about one rank."""

    groups: dict[str, GroupLog] = field(default_factory=dict)
    faults: list[LogLine] = field(default_factory=list)
    ended_by: str = ""
    """How the rank ended, from the launcher's table of failures."""
    ended_ns: int = 0
    host: str = ""
    unlinked: dict[int, list[tuple[LoggedWork, int]]] = field(default_factory=dict)
    """Number -> operations that timed out and whose group is not known yet."""

    def of(self, uid: str) -> GroupLog:
        if uid not in self.groups and len(self.groups) >= MAX_GROUPS:
            return GroupLog()
        return self.groups.setdefault(uid, GroupLog())

    def add_unlinked(self, work: LoggedWork, at_ns: int) -> None:
        """Keep an operation until its group is known. Operations that have a group are ignored: the last lines of a
        process repeat them."""
        if any(work.seq in of_group.works for of_group in self.groups.values()):
            return
        same = self.unlinked.setdefault(work.seq, [])
        if all(known.op != work.op for known, _ in same) and len(self.unlinked) <= MAX_WORKS:
            same.append((work, at_ns))

    def link(self, uid: str, seq: int) -> None:
        """Assign the operation ``seq`` to the group ``uid``. If several groups are at that number, it is not known
        which operation it is."""
        same = self.unlinked.get(seq, [])
        if not same:
            return
        work, at_ns = same[0]
        if len(same) == 1:
            del self.unlinked[seq]
        else:
            work = replace(work, op=NAMELESS, numel_in=-1, numel_out=-1)
        self.of(uid).add_work(work, at_ns)

    def put_unlinked(self, uid: str) -> None:
        """Assign all operations that no line linked to the group ``uid``. Called at the end of a file."""
        linked = {seq for of_group in self.groups.values() for seq in of_group.works}
        for seq, same in self.unlinked.items():
            if seq not in linked:
                self.of(uid).add_work(*same[0])
        self.unlinked.clear()


@dataclass(slots=True)
class JobLog:
    """What all files show."""

    ranks: dict[int, RankLog] = field(default_factory=dict)
    joined: list[tuple[tuple[int, ...], int, int]] = field(default_factory=list)
    """Ranks, and the numbers that they entered and completed, in desync reports."""
    sizes: set[int] = field(default_factory=set)
    """Numbers of ranks of the job that lines state."""
    highest: int = -1
    """The highest rank that a line names."""
    first_ns: int = 0
    last_ns: int = 0
    """``first_ns`` and ``last_ns``: times of the first and the last line that reports an operation or counts."""
    longest_ns: int = ONE_STALL_NS
    files: list[str] = field(default_factory=list)
    """Names of the files that were read."""
    num_unknown: int = 0
    """Number of lines about an unknown rank."""
    notes: list[str] = field(default_factory=list)

    def of(self, rank: int) -> RankLog | None:
        if rank >= MAX_RANKS or (rank not in self.ranks and len(self.ranks) >= MAX_LOGGED_RANKS):
            return None
        self.highest = max(self.highest, rank)
        return self.ranks.setdefault(rank, RankLog())

    def add_report(self, at_ns: int, ran_ns: int) -> None:
        """Note a line that reports an operation or counts. ``ran_ns``: the wait that it reports, or 0."""
        self.longest_ns = max(self.longest_ns, ran_ns)
        if at_ns:
            self.first_ns = min(self.first_ns or at_ns, at_ns)
            self.last_ns = max(self.last_ns, at_ns)

    @property
    def is_mixed(self) -> bool:
        """Whether the log holds more than one stall, so that its lines cannot be combined."""
        of_groups = (of_group for log in self.ranks.values() for of_group in log.groups.values())
        return self.last_ns - self.first_ns > self.longest_ns or any(of_group.is_mixed for of_group in of_groups)
