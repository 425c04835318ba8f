"""The facts in one line that torch, its launcher or its communication libraries print about a stall.

    [rank3]:[E1206 18:44:12.7 ProcessGroupNCCL.cpp:607] [Rank 1] Watchdog caught collective operation timeout:
        WorkNCCL(SeqNum=7219, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600029 milliseconds
    [rank3]:[E1206 18:44:12.7 ProcessGroupNCCL.cpp:1785] [PG ID 2 PG GUID 5(mesh_tp) Rank 1] ... at work: 7219,
        last enqueued NCCL work: 7220, last completed NCCL work: 7218.

``[rank3]:`` is the global rank (torch 2.2 and newer). ``[PG ... Rank 1]`` is the place within the group, and the counts
are those of that group. ``[Rank 1]`` alone is the place within the group whose operation the process reported first.
A rank that reports no timeout prints only its counts of the default group, when another rank asks for dumps.

Wordings are those of torch 2.1 to 2.13. Source: ProcessGroupNCCL.cpp, TraceUtils.h and elastic/multiprocessing of
torch. Everything here is a function of one line.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

from telemetry.evidence.known_faults import fault_of

MAX_LINE = 4000
"""Characters of a line that are examined."""
MAX_NAME = 200
WORLD_UID, WORLD_NAMES = "0", ("default_pg", "default")
_NS_PER_S = 1_000_000_000
_NUMBER = r"\d{1,18}"
_RANK = re.compile(r"(?:\[(?P<role>[A-Za-z_]{1,40}\d{1,7})\]: ?)?\[rank(?P<rank>\d{1,7})\]:")
_ROLE = re.compile(r"^\[(?P<role>[A-Za-z_]{1,40}\d{1,7})\]:")
_PLACE = re.compile(r"\[Rank (\d{1,7})\]")
_GROUP = re.compile(
    r"\[PG (?:ID )?(?P<id>[^\s(\]]{1,200}) ?(?:PG GUID (?P<guid>[^\s(\]]{1,200}) ?)?(?:\((?P<desc>[^)\]]{0,200})\) ?)?"
    r"Rank (?P<place>\d{1,7})\]"
)
_WORK = re.compile(
    rf"Work[A-Z]\w{{0,20}}\(SeqNum=(?P<seq>{_NUMBER}), OpType=(?P<op>\w{{1,60}})(?:, NumelIn=(?P<numel_in>{_NUMBER}))?"
    rf"(?:, NumelOut=(?P<numel_out>{_NUMBER}))?(?:, Timeout\(ms\)=(?P<limit>{_NUMBER}))?\)"
    rf"(?: ran for (?P<ran>{_NUMBER}) milliseconds)?"
)
_COUNTS = re.compile(
    rf"[Ll]ast enqueued (?:\w{{1,20}} )?work: (?P<enqueued>-?{_NUMBER}).{{0,300}}?"
    rf"last completed (?:\w{{1,20}} )?work: (?P<completed>-?{_NUMBER})"
)
_AT_WORK = re.compile(rf"(?:at work(?: sequence id)?|Timeout at \w{{1,20}} work): (?P<seq>{_NUMBER})")
_JOINED = re.compile(
    rf"\[(?P<places>[\d, ]{{1,3000}})\] (?P<end>finished|joined but didn't finish) collective #(?P<seq>{_NUMBER})"
)
_STAMP = re.compile(
    r"\[[EWIF](?P<month>\d{1,2})(?P<day>\d\d) (?P<time>\d\d:\d\d:\d\d)(?:\.(?P<part>\d{1,9}))?"
    r"|\d{4}-(?P<month2>\d\d)-(?P<day2>\d\d)[T_ ](?P<time2>\d\d:\d\d:\d\d)(?:[.,](?P<part2>\d{1,9}))?"
)
_WORLD = re.compile(
    r"(?:\b(?P<of>[a-z]{1,20})[ _-])?\bworld[_ -]?size(?:\s{0,8}[=:]\s{0,8}| )(?P<size>\d{1,7})\b", re.IGNORECASE
)
_OPTIONS = re.compile(r"initialization options: size: (?P<size>\d{1,7}), global rank: \d")
_OF_GROUP = re.compile(
    r"parallel|[dtpce]p|group|local|data|tensor|pipeline|model|expert|context|sequence", re.IGNORECASE
)
"""Words before a world size that is not the size of the whole job."""
_PEERS = re.compile(r"Expected number of connected peer ranks is : (\d{1,7})")
_NRANKS = re.compile(r"\bnranks (\d{1,7})\b", re.IGNORECASE)
"""Number of ranks of an NCCL communicator. The job has at least as many."""
_OTHER_RANK = re.compile(r"collective timeout from +rank (\d{1,7})")
_TABLE = {
    "time": re.compile(r"^\s*(?:\[\w+\]:)?\s*time\s+: (.{1,64})$"),
    "host": re.compile(r"^\s*(?:\[\w+\]:)?\s*host\s+: (\S{1,255})\s*$"),
    "rank": re.compile(r"^\s*(?:\[\w+\]:)?\s*rank\s+: (\d{1,7}) \(local_rank: \d{1,7}\)"),
    "exit": re.compile(r"^\s*(?:\[\w+\]:)?\s*exitcode\s*: (-?\d{1,5}) \(pid: \d{1,10}\)"),
}
INTERESTING = re.compile(
    rb"\[PG |Work[A-Z]\w*\(|enqueued|collective #|NCCL|nccl|[Gg]loo|CUDA|cuda|Error|Exception|Exit|Interrupt|Traceback"
    rb"|exitcode|rank +:|host +:|time +:|SIG|[Ss]ignal|closed by peer|reset by peer|[Tt]ime(?:d )?out|n[rR]anks"
    rb"|[wW]orld|WORLD|peer ranks|emory|oom|Xid|terminate|core dumped|abort|Abort|No space|quota|Segmentation|Bus error"
    rb"|Failure|CUBLAS|CUDNN"
)
"""Bytes in each line that shows more than the name of its rank. Few lines of a healthy job have them."""
RANK_PREFIX = re.compile(rb"\[rank\d{1,7}\]")
_OPERATIONS = {
    "allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce",
    "allgather": "all_gather",
    "allgather_base": "all_gather_into_tensor",
    "allgather_coalesced": "all_gather",
    "reduce_scatter_base": "reduce_scatter_tensor",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all",
    "allgather_into_tensor_coalesced": "all_gather_into_tensor",
}
GATHERS = ("all_gather", "all_gather_into_tensor")
SCATTERS = ("reduce_scatter", "reduce_scatter_tensor")
EQUAL_SIZES = ("all_reduce", "broadcast", "all_gather_into_tensor", "reduce_scatter_tensor")
"""Operations whose members must have the same numbers of elements."""
TRANSFERS = ("send", "recv", "coalesced", "unknown")
"""Types of point-to-point work, and of batches that may hold it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedGroup:
    """The group that a line names, and the place of its rank in it."""

    uid: str
    desc: str
    place: int

    @property
    def is_world(self) -> bool:
        return is_world(self.uid, self.desc)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedWork:
    """The operation that a watchdog reports."""

    seq: int
    op: str
    """As in torch's API: ``all_reduce``."""
    numel_in: int = -1
    numel_out: int = -1
    ran_ns: int = 0
    """0: not printed."""

    @property
    def group_size(self) -> int:
        """Members of the group, if the sizes show it; else 0."""
        small, large = self.numel_in, self.numel_out
        if self.op in SCATTERS:
            small, large = large, small
        is_known = self.op in (*GATHERS, *SCATTERS) and small > 0 and large > small and large % small == 0
        return large // small if is_known else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFact:
    """All facts in a line. If a field has its default value, the line does not show that fact."""

    rank: int | None = None
    """Rank in the line's prefix: the global one, unless a launcher wrote the prefix."""
    role: str = ""
    """Prefix of a launcher: role and, usually, local rank. ``default3``."""
    place: int = -1
    """Rank within a group that the line does not name."""
    group: LoggedGroup | None = None
    work: LoggedWork | None = None
    work_seq: int | None = None
    """Number of the work that failed, if the line names no more of it."""
    counts: tuple[int, int] | None = None
    """Enqueued and completed; -1: none."""
    joined: tuple[tuple[int, ...], int, int] | None = None
    """From a desync report: places in the group, and the numbers that they entered and completed."""
    at_ns: int = 0
    """Time of the line within a year, in the clock of its host; 0: none."""
    world_size: int = 0
    """A number of ranks of the job that the line states."""
    other_rank: int = -1
    """Another rank of the job, as the line shows."""
    fault: str = ""
    cell: tuple[str, str] = ("", "")
    """Column and value, if the line is a cell of the launcher's table of failures."""


@lru_cache(maxsize=1024)
def fact_of(line: str) -> LogFact:
    """The facts in a line. Never raises. Cached, because lines often repeat."""
    line = line[:MAX_LINE]
    prefixes = list(_RANK.finditer(line))
    ranks = {int(prefix["rank"]) for prefix in prefixes}
    if len(ranks) > 1:  # lines of two ranks, run together
        return LogFact()
    launcher = prefixes[0] if prefixes else _ROLE.search(line)
    place = _PLACE.search(line)
    is_torch = "ork" in line or "ollective" in line
    at_work = _AT_WORK.search(line) if is_torch else None
    counts = _COUNTS.search(line) if is_torch else None
    other, communicator = _OTHER_RANK.search(line), _NRANKS.search(line)
    group = _group(line)
    return LogFact(
        rank=next(iter(ranks), None),
        role=(launcher["role"] or "") if launcher else "",
        place=int(place[1]) if place else -1,
        group=group,
        work=_work(line) if is_torch else None,
        work_seq=int(at_work["seq"]) if at_work else None,
        counts=(int(counts["enqueued"]), int(counts["completed"])) if counts else None,
        joined=_joined(line) if is_torch else None,
        at_ns=stamp_of(line),
        world_size=_world_size(line, group),
        other_rank=int(other[1]) if other else int(communicator[1]) - 1 if communicator else -1,
        fault=fault_of(line),
        cell=next(((name, found[1]) for name, form in _TABLE.items() if (found := form.match(line))), ("", "")),
    )


def _group(line: str) -> LoggedGroup | None:
    found = _GROUP.search(line)
    if found is None:
        return None
    return LoggedGroup(uid=found["guid"] or found["id"], desc=found["desc"] or "", place=int(found["place"]))


def _work(line: str) -> LoggedWork | None:
    found = _WORK.search(line)
    if found is None:
        return None
    return LoggedWork(
        seq=int(found["seq"]),
        op=operation_of(found["op"]),
        numel_in=int(found["numel_in"] or -1),
        numel_out=int(found["numel_out"] or -1),
        ran_ns=int(found["ran"] or 0) * 1_000_000,
    )


def operation_of(op_type: str) -> str:
    """``_ALLGATHER_BASE`` as ``all_gather_into_tensor``."""
    name = op_type.lower().strip("_").removesuffix("_oop")
    return _OPERATIONS.get(name, name)


def _joined(line: str) -> tuple[tuple[int, ...], int, int] | None:
    found = _JOINED.search(line)
    if found is None:
        return None
    places = tuple(int(place) for place in found["places"].replace(" ", "").split(",") if place and len(place) < 8)
    seq = int(found["seq"])
    return places, seq, seq if found["end"] == "finished" else seq - 1


def stamp_of(text: str) -> int:
    """The time in a text, in nanoseconds since the begin of a leap year. 0 if it has none. Lines of torch do not name
    the year."""
    found = _STAMP.search(text)
    if found is None:
        return 0
    month, day = int(found["month"] or found["month2"]), int(found["day"] or found["day2"])
    hours, minutes, seconds = map(int, (found["time"] or found["time2"]).split(":"))
    if not (1 <= month <= 12 and 1 <= day <= 31 and hours < 24 and minutes < 60 and seconds < 62):
        return 0
    days = (0, 31, 60, 91, 121, 152, 182, 213, 244, 274, 305, 335)[month - 1] + day
    part_ns = int((found["part"] or found["part2"] or "0").ljust(9, "0"))
    return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * _NS_PER_S + part_ns


def is_world(uid: str, desc: str) -> bool:
    """Whether a group is the default group, which has all ranks."""
    return uid == WORLD_UID or desc in WORLD_NAMES


def _world_size(line: str, group: LoggedGroup | None) -> int:
    if group is not None and group.is_world and (options := _OPTIONS.search(line)):
        return int(options["size"])
    peers = _PEERS.search(line)
    if peers:
        return int(peers[1]) + 1
    found = _WORLD.search(line)
    return int(found["size"]) if found and not _OF_GROUP.fullmatch(found["of"] or "") else 0
