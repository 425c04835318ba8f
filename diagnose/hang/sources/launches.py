"""What NCCL RAS and a source of torch disagree on: a flight recorder, or a log.

    order      RAS shows a rank ahead of another one in a communicator, torch does not
    entered    torch shows that a rank waits in an operation that another member has not entered. RAS shows the other
               member as far, or ahead
    members    torch's group has operations, but RAS lists no communicator with these members

RAS and torch have no common names of groups. A communicator and a group are compared if they are the only ones with
their members. Of a group in a log, only the members that print it are known, and their places in the group:

    log    mesh_tp: rank 5 has place 1, rank 7 has place 3
    RAS    0x1a [0-3]    0x1b [4-7]    0x1f [0-7]        only 0x1b has ranks 5 and 7 at these places

RAS counts fewer operations than torch, but in the same order. So a rank that RAS shows ahead of another one has also
entered more operations of torch's group. The reverse holds for operations that NCCL counts: a rank that waits in one
has launched it, and a rank that has not entered it has launched less.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from diagnose.hang.evidence import Contradiction, Group, HangEvidence

Named = tuple[str, HangEvidence]
"""The name of a source, and its evidence."""
LEAST_MEMBERS = 2
"""Fewer known members of a group do not identify its communicator."""
LEAST_LISTED = 2
"""An answer of RAS as text lists one communicator only."""
_FUNCTIONS = {
    "all_reduce": "AllReduce",
    "barrier": "AllReduce",
    "all_gather": "AllGather",
    "reduce_scatter": "ReduceScatter",
    "broadcast": "Broadcast",
}
"""Begin of the names of torch's operations -> the function of NCCL that carries them out and is counted."""


def function_of(op: str) -> str:
    """The function of NCCL that is counted for an operation of torch. Empty: it is not known, or nothing is counted.

    torch sends an all-to-all, a gather and a scatter as transfers.
    """
    name = op.strip("_").removesuffix("_oop")
    if name == "reduce":
        return "Reduce"
    return next((function for begin, function in _FUNCTIONS.items() if name.startswith(begin)), "")


def between_ras_and_torch(torch: Named, ras: Named) -> Iterator[Contradiction]:
    """All contradictions between a source of torch and RAS."""
    torch = torch[0], _with_known_members(torch[1])
    fitting = _fitting(torch[1].groups, ras[1].groups)
    pairs = {index: comms[0] for index, comms in fitting.items() if len(comms) == 1}
    pairs |= _of_same_members(torch[1].groups, ras[1].groups)
    for index, comm in sorted(pairs.items()):
        entered, launched = _entered(torch[1], index), _entered(ras[1], comm)
        yield from _on_order(torch, ras, comm, entered, launched)
        yield from _on_waits(torch, ras, index, entered, launched)
    if pairs:
        yield from _on_members(torch, ras, fitting)


def _on_order(
    torch: Named, ras: Named, comm: int, entered: Mapping[int, int], launched: Mapping[int, int]
) -> Iterator[Contradiction]:
    """Ranks that are behind others in RAS but not in torch. At most one contradiction for each rank."""
    least: int | None = None  # the rank that entered the fewest operations, of those that RAS shows further ahead
    ranks = sorted(entered.keys() & launched.keys(), key=lambda rank: -launched[rank])
    for _, level in groupby(ranks, key=launched.__getitem__):
        same = sorted(level)
        for rank in same:
            if least is not None and entered[least] <= entered[rank]:
                where = ras[1].groups[comm].name
                text = f"the {ras[0]} shows rank {rank} behind rank {least} in {where}, the {torch[0]} does not"
                yield Contradiction(ranks=(rank, least), text=text, apart=(torch[0], ras[0]))
        least = min((*same, *([] if least is None else [least])), key=entered.__getitem__)


def _on_waits(
    torch: Named, ras: Named, index: int, entered: Mapping[int, int], launched: Mapping[int, int]
) -> Iterator[Contradiction]:
    """Ranks that have not entered an operation in which another rank waits, although RAS shows that they have launched
    as many operations as this rank."""
    waiting: dict[tuple[int, str], list[int]] = defaultdict(list)
    for rank in sorted(launched.keys() & torch[1].ranks.keys()):
        for op in torch[1].ranks[rank].pending:
            if op.group == index and not op.is_transfer and function_of(op.op):
                waiting[op.seq, op.op].append(rank)
    found: dict[int, Contradiction] = {}
    for (seq, name), ranks in sorted(waiting.items()):
        waiter = min(ranks, key=launched.__getitem__)
        for rank in sorted(entered.keys() & launched.keys() - found.keys()):
            if entered[rank] < seq and launched[rank] >= launched[waiter]:
                text = (
                    f"the {torch[0]} says rank {rank} has not entered {name} #{seq} of {torch[1].groups[index].name}, "
                    f"in which rank {waiter} waits; the {ras[0]} says rank {rank} has launched as many operations as "
                    f"rank {waiter}"
                )
                found[rank] = Contradiction(ranks=(rank, waiter), text=text, apart=(torch[0], ras[0]))
    yield from found.values()


def _on_members(torch: Named, ras: Named, fitting: Mapping[int, Sequence[int]]) -> Iterator[Contradiction]:
    """Groups of torch that have operations, but no communicator. ``fitting``: see :func:`_fitting`."""
    comms = ras[1].groups
    if len(comms) < LEAST_LISTED or not all(comm.complete for comm in comms):
        return
    listed = {tuple(sorted(comm.members)) for comm in comms}
    for index, group in enumerate(torch[1].groups):
        is_listed = tuple(sorted(group.members)) in listed if group.complete else bool(fitting.get(index, [0]))
        users = tuple(sorted(rank for rank, entered in _entered(torch[1], index).items() if entered))
        if group.uid and len(group.members) >= LEAST_MEMBERS and users and not is_listed:
            text = f"the {torch[0]} shows operations of {group.name}, the {ras[0]} no communicator with its members"
            yield Contradiction(ranks=users, text=text, apart=(torch[0], ras[0]))


def _with_known_members(evidence: HangEvidence) -> HangEvidence:
    """The evidence with an incomplete default group if the number of ranks is a guess: more ranks may exist."""
    guessed = tuple(range(evidence.world_size)) if evidence.guessed_size else ()
    groups = (
        replace(group, complete=False, places=guessed) if group.complete and group.members == guessed else group
        for group in evidence.groups
    )
    return replace(evidence, groups=tuple(groups))


def _of_same_members(groups: Sequence[Group], comms: Sequence[Group]) -> dict[int, int]:
    """Index of a group -> index of the communicator with the same members.

    Only pairs without doubt: no other group and no other communicator has these members.
    """
    same = _by_members(comms)
    return {index: same[members] for members, index in _by_members(groups).items() if members in same}


def _fitting(groups: Sequence[Group], comms: Sequence[Group]) -> dict[int, list[int]]:
    """Index of an incomplete group -> indices of the communicators that have its known members at the same places."""
    with_rank: dict[tuple[int, int], set[int]] = defaultdict(set)
    for at, comm in enumerate(comms):
        for place, rank in enumerate(comm.members if comm.complete else ()):
            with_rank[rank, place].add(at)
    return {
        index: sorted(set.intersection(*(with_rank[each] for each in zip(group.members, group.places, strict=True))))
        for index, group in enumerate(groups)
        if not group.complete and len(group.places) >= LEAST_MEMBERS
    }


def _by_members(groups: Iterable[Group]) -> dict[tuple[int, ...], int]:
    """Members of a group -> its index. Without groups whose members another group has, too."""
    same: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for index, group in enumerate(groups):
        if group.complete and len(group.members) > 1:
            same[tuple(sorted(group.members))].append(index)
    return {members: found[0] for members, found in same.items() if len(found) == 1}


def _entered(evidence: HangEvidence, index: int) -> dict[int, int]:
    """Rank -> number of operations of a group that it has entered, if this is exact."""
    ranks = (evidence.ranks[rank] for rank in evidence.groups[index].members if rank in evidence.ranks)
    fronts = {of_rank.rank: of_rank.fronts.get(index) for of_rank in ranks}
    return {rank: front.entered for rank, front in fronts.items() if front is not None and not front.least_entered}
