"""What two sources of one stall disagree on.

    counts     a rank has other counts in one group
    members    a rank is in a group that, as the other source lists it, does not hold the rank
    order      NCCL RAS shows a rank ahead of another one in a communicator, torch does not: see below
    process    one shows that the rank has ended, the other that it lives
    waiting    a rank waits in communication, but nothing of it is pending

A stalled job does not change, so sources of one moment agree on counts and members. If they do not for several ranks,
the sources are of different moments, attempts or numberings of ranks.

RAS and torch have no common names of groups. A communicator and a group are compared if they are the only ones with
their members. RAS counts fewer operations than torch, but in the same order. So a rank that RAS shows ahead of another
one has also entered more operations of torch's group.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from diagnose.hang.evidence import Contradiction, Front, Group, HangEvidence, Process, RankEvidence

LEAST_RANKS = 2
"""A single rank may have been read at another time, or have an incomplete log."""
_ENDED = (Process.DEAD, Process.ENDED)
_Records = tuple[str, RankEvidence]
"""The name of a source, and its record of a rank with indices of the common groups."""


def of_one_rank(
    known: _Records, more: _Records, groups: Sequence[Group], mixed: Collection[int]
) -> Iterator[Contradiction]:
    """Contradictions between two sources on one rank, except those on members. ``mixed``: groups that carry transfers.
    Some versions of torch number these together with collectives in logs, and separately in dumps."""
    (name, first), (other, second) = known, more
    rank = first.rank
    for index in sorted(first.fronts.keys() & second.fronts.keys()):
        for verb, one, two in _differences(first.fronts[index], second.fronts[index]):
            text = f"the {other} says rank {rank} {verb} {two} of {groups[index].name}, the {name} says {one}"
            yield Contradiction(ranks=(rank,), text=text, apart=None if index in mixed else (name, other))
    if second.process in _ENDED and first.process in (Process.ALIVE, Process.STOPPED):
        text = f"the {other} says rank {rank} is {second.process}, the {name} says {first.process}"
        yield Contradiction(ranks=(rank,), text=text)
    if second.on_host is False and not first.partial and not first.pending and first.fronts:
        text = f"the {other} say rank {rank} waits in communication, the {name} shows nothing pending"
        yield Contradiction(ranks=(rank,), text=text)


def _differences(first: Front, second: Front) -> Iterator[tuple[str, int, int]]:
    if _differ(first.completed, first.least_completed, second.completed, second.least_completed):
        yield "completed", first.completed, second.completed
    if _differ(first.entered, first.least_entered, second.entered, second.least_entered):
        yield "entered", first.entered, second.entered


def _differ(first: int, first_is_least: bool, second: int, second_is_least: bool) -> bool:
    """Whether two counts contradict each other. ``first_is_least``, ``second_is_least``: the count is a lower bound."""
    return (first < second and not first_is_least) or (second < first and not second_is_least)


def on_members(
    found: Sequence[tuple[str, HangEvidence]], groups_of: Mapping[str, Mapping[int, set[int]]]
) -> Iterator[Contradiction]:
    """Contradictions on the members of groups.

    ``groups_of``: source -> rank -> indices of the groups about which the source shows something of the rank.
    """
    for at, (name, evidence) in enumerate(found):
        holders: dict[str, list[Group]] = defaultdict(list)
        for group in evidence.groups:
            if group.uid:
                holders[group.uid].append(group)
        listed = {uid: groups for uid, groups in holders.items() if all(group.complete for group in groups)}
        for other, theirs in found[at + 1 :]:
            for rank, indices in sorted(groups_of[other].items()):
                for group in (theirs.groups[index] for index in sorted(indices)):
                    known = listed.get(group.uid, [])
                    if known and all(rank not in one.members for one in known):
                        text = f"the {other} says rank {rank} is in {group.name}, the {name} says it is not"
                        yield Contradiction(ranks=(rank,), text=text, apart=(name, other))


def on_order(torch: tuple[str, HangEvidence], ras: tuple[str, HangEvidence]) -> Iterator[Contradiction]:
    """Contradictions on ranks that are behind others in RAS but not in torch. At most one for each rank and group."""
    (name, evidence), (other, counted) = torch, ras
    groups, comms = _by_members(evidence.groups), _by_members(counted.groups)
    for members in sorted(groups.keys() & comms.keys()):
        entered, launched = _entered(evidence, groups[members]), _entered(counted, comms[members])
        least: int | None = None  # the rank that entered the fewest operations, of those that RAS shows further ahead
        ranks = sorted(entered.keys() & launched.keys(), key=lambda rank: -launched[rank])
        for _, level in groupby(ranks, key=launched.__getitem__):
            same = sorted(level)
            for rank in same:
                if least is not None and entered[least] <= entered[rank]:
                    where = counted.groups[comms[members]].name
                    text = f"the {other} shows rank {rank} behind rank {least} in {where}, the {name} does not"
                    yield Contradiction(ranks=(rank, least), text=text, apart=(name, other))
            least = min((*same, *([] if least is None else [least])), key=entered.__getitem__)


def _entered(evidence: HangEvidence, index: int) -> dict[int, int]:
    """Rank -> number of operations of a group that it has entered, if this is exact."""
    fronts = {rank: of_rank.fronts.get(index) for rank, of_rank in evidence.ranks.items()}
    return {rank: front.entered for rank, front in fronts.items() if front is not None and not front.least_entered}


def _by_members(groups: Iterable[Group]) -> dict[tuple[int, ...], int]:
    """Indices of groups that are the only ones with their members."""
    same: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for index, group in enumerate(groups):
        if group.complete and len(group.members) > 1:
            same[tuple(sorted(group.members))].append(index)
    return {members: found[0] for members, found in same.items() if len(found) == 1}


def sources_apart(contradictions: Iterable[Contradiction]) -> tuple[str, str] | None:
    """Two sources that do not show the same moment of the same job, or None if there are none."""
    ranks: dict[tuple[str, str], set[int]] = defaultdict(set)
    for one in contradictions:
        if one.apart is not None:
            ranks[one.apart].update(one.ranks)
    return next((pair for pair, disputed in ranks.items() if len(disputed) >= LEAST_RANKS), None)
