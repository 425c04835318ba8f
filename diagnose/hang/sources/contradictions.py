"""What two sources of one stall disagree on.

    counts     a rank has other counts in one group
    members    a rank is in a group that, as the other source lists it, does not hold the rank
    process    one shows that the rank has ended, the other that it lives
    waiting    a rank waits in communication, but nothing of it is pending
    time       an operation of a rank began long before or after those that rank files show
    reported   a log reports an operation that timed out, and the rank has no such operation pending

A stalled job does not change, so sources of one moment agree on counts and members. If they do not for several ranks,
the sources are of different moments, attempts or numberings of ranks. ``launches.py`` compares NCCL RAS with torch.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from diagnose.hang.evidence import (
    NS_PER_S,
    Contradiction,
    Front,
    Group,
    HangEvidence,
    Pending,
    Process,
    RankEvidence,
)
from diagnose.hang.sources.from_communicators import RAS
from diagnose.hang.sources.launches import function_of

LEAST_RANKS = 2
"""A single rank may have been read at another time, or have an incomplete log. ``Contradiction.is_certain`` marks
contradictions that these cannot explain."""
CLEARLY_NS = 60 * NS_PER_S
"""Both times are of the clock of the rank's host."""
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
    if not (first.partial or second.partial) and _lacks_operations(first, second):
        text = f"the {other} shows an operation of rank {rank} that began at another time than those in the {name}"
        yield Contradiction(ranks=(rank,), text=text, apart=(name, other), is_certain=True)
    has_numbers = not first.partial and first.fronts and all(groups[index].uid for index in first.fronts)
    for op in second.pending if has_numbers and second.partial and other != RAS else ():
        if function_of(op.op) and not _may_be_pending(first, op):
            text = f"the {other} says {op.op} #{op.seq} of rank {rank} has timed out, the {name} does not show it"
            yield Contradiction(ranks=(rank,), text=text, apart=(name, other), is_certain=True)


def _lacks_operations(of_rank: RankEvidence, more: RankEvidence) -> bool:
    """Whether ``more`` has an operation that began clearly later than all in ``of_rank``, or one that is pending and
    began clearly earlier than all that are pending there. ``of_rank`` comes from rank files, which show all operations.
    """
    begun, more_begun = _begins_ns(of_rank), _begins_ns(more)
    if begun and more_begun and max(more_begun) > max(begun) + CLEARLY_NS:
        return True
    pending, more_pending = ([op.since_ns for op in each.pending if op.since_ns] for each in (of_rank, more))
    is_exact = all(_is_only_one(of_rank, op) for op in of_rank.pending)
    return bool(is_exact and pending and more_pending) and min(more_pending) < min(pending) - CLEARLY_NS


def _is_only_one(of_rank: RankEvidence, op: Pending) -> bool:
    """Whether a collective is the only one that is pending in its group. Rank files show when the newest one began."""
    front = of_rank.fronts.get(op.group)
    return not op.is_transfer and front is not None and front.entered == front.completed + 1


def _begins_ns(of_rank: RankEvidence) -> list[int]:
    """Wall clock at which operations of a rank began, as far as it is known."""
    begins = (*(front.entered_ns for front in of_rank.fronts.values()), *(op.since_ns for op in of_rank.pending))
    return [begin_ns for begin_ns in begins if begin_ns]


def _may_be_pending(of_rank: RankEvidence, op: Pending) -> bool:
    """Whether a rank of which everything is known may wait in an operation of a log.

    Its group is not compared: old logs do not name it, or give several groups one name. Numbers of a group that carries
    transfers are not compared either: some versions of torch number both together.
    """
    collectives = [each for each in of_rank.pending if not each.is_transfer]
    mixed = {each.group for each in of_rank.pending if each.is_transfer}
    recorded = {(each.group, each.seq) for each in collectives}
    is_lost = any(  # the flight recorder is too small for all entries
        front.completed < op.seq <= front.entered and (index, op.seq) not in recorded
        for index, front in of_rank.fronts.items()
    )
    return is_lost or any(
        (each.seq == op.seq or each.group in mixed) and function_of(each.op) in ("", function_of(op.op))
        for each in collectives
    )


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


def sources_apart(contradictions: Iterable[Contradiction]) -> tuple[str, str] | None:
    """Two sources that do not show the same moment of the same job, or None if there are none."""
    ranks: dict[tuple[str, str], set[int]] = defaultdict(set)
    for one in contradictions:
        if one.apart is not None and one.is_certain:
            return one.apart
        if one.apart is not None:
            ranks[one.apart].update(one.ranks)
    return next((pair for pair, disputed in ranks.items() if len(disputed) >= LEAST_RANKS), None)
