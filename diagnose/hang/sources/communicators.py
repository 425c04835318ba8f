"""NCCL's communicators, as NCCL RAS and NCCL Inspector show them, and the global rank of each process in them.

    process (host, pid, GPU)     rank in the communicator of all processes = global rank
    communicator 0xae94...       rank 1 = the process that has rank 5 there

NCCL does not know global ranks. Without a communicator of all processes, no rank has a known number.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from telemetry.errors import UnreadableError
from telemetry.files.plain_pickle import MalformedError
from telemetry.topology import MAX_RANKS

MAX_COMMUNICATORS = 100_000
Member = tuple[str, int, int]
"""Host, process and GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommRank:
    """A rank in a communicator."""

    rank: int
    member: Member
    counts: Mapping[str, int] = field(default_factory=dict)
    """Function of NCCL, such as ``AllReduce`` -> number of operations: launched ones from RAS, completed ones from
    Inspector."""
    is_missing: bool = False
    """Whether it gave no answer."""
    is_dead: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Communicator:
    """A communicator and its ranks."""

    uid: str
    size: int
    ranks: Sequence[CommRank]


def checked(number: object, limit: int = MAX_RANKS) -> int:
    """``number``, which must be from 0 to ``limit``.

    Raises:
        MalformedError: it is no such number.
    """
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= limit:
        raise MalformedError(f"{str(number)[:40]!r} is not a number from 0 to {limit}")
    return number


def global_ranks(communicators: Iterable[Communicator], source: str) -> dict[Member, int]:
    """The global rank of each process.

    Raises:
        UnreadableError: no communicator holds all processes, or several do and number them differently.
    """
    comms = list(communicators)
    members = {one.member for comm in comms for one in comm.ranks}
    of_all = [(comm.size, ranks) for comm in comms if (ranks := _ranks_in(comm, members))]
    size_of_largest = max((size for size, _ in of_all), default=0)
    largest = [ranks for size, ranks in of_all if size == size_of_largest]
    if not largest or any(ranks != largest[0] for ranks in largest):
        shows = (
            "several communicators with all processes, but they number the processes differently"
            if largest
            else f"no communicator with all {len(members)} processes, so the numbers of the ranks are unknown"
        )
        raise UnreadableError(f"{source} shows {shows}", hint="use --logs, --dumps or --stacks, which name the ranks")
    return largest[0]


def _ranks_in(comm: Communicator, members: set[Member]) -> dict[Member, int]:
    """The rank of each process in a communicator of all processes. Empty if a process is not in it."""
    ranks = {one.member: one.rank for one in comm.ranks}
    is_of_all = ranks.keys() >= members and comm.size >= len(members) > 0 and len(set(ranks.values())) == len(ranks)
    return ranks if is_of_all else {}


# Operations that all members leave together: NCCL's name -> torch's name.
TOGETHER = {
    "AllReduce": "all_reduce",
    "AllGather": "all_gather",
    "ReduceScatter": "reduce_scatter",
    "AlltoAll": "all_to_all",
    "AllGatherV": "all_gather",
}
APART = {"Broadcast": "broadcast", "Reduce": "reduce", "Scatter": "scatter", "Gather": "gather"}
"""A member may leave these before another has entered."""
