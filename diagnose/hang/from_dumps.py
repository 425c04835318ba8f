"""Flight-recorder dumps of a job's ranks as evidence.

A dump identifies groups in two ways: by their name, and by a number that is only valid on its rank. Entries connect the
two. A stuck rank may have no entry at all. Then entries of ranks that have groups with the same descriptions under the
same numbers are used.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from diagnose.hang.dump import DumpEntry, DumpSet, RankDump
from diagnose.hang.evidence import (
    NAMELESS,
    WHOLE_GROUP,
    Front,
    Group,
    GroupTable,
    HangEvidence,
    Pending,
    RankEvidence,
)
from diagnose.hang.job_size import plausible_size

MAX_DIGITS = 10
WORLD_NAMES = ("default_pg", "default")
KNOWN_VERSIONS = tuple(f"2.{minor}" for minor in range(1, 11))

_Shape = tuple[tuple[str, ...], tuple[str, ...]]
"""A rank's numbers of its groups, and the groups' descriptions. Ranks of one shape use the same numbers."""


@dataclass(slots=True, eq=False)
class _Groups(GroupTable):
    with_transfers: set[str] = field(default_factory=set)
    """Labels of the groups that carry point-to-point traffic."""


def evidence_from_dumps(dumps: DumpSet) -> HangEvidence:
    """The evidence in the dumps of a job's ranks."""
    by_rank = dumps.by_rank
    groups = _Groups()
    names = {rank: _index_groups(dump, by_rank, groups) for rank, dump in by_rank.items()}
    entries = (entry for dump in by_rank.values() for entry in dump.entries)
    groups.with_transfers.update(_label(entry.group, entry.desc) for entry in entries if entry.is_transfer)
    numbers = _numbers_by_shape(by_rank)
    ranks = {rank: _rank(rank, dump, names[rank], numbers, groups) for rank, dump in by_rank.items()}
    versions = sorted({dump.version for dump in by_rank.values()} - set(KNOWN_VERSIONS))
    unknown = ", ".join(version or "unknown" for version in versions)
    return HangEvidence(
        world_size=_world_size(by_rank, groups),
        guessed_size=not any(group.complete for group in groups.groups),
        groups=tuple(groups.groups),
        ranks=ranks,
        notes=(*dumps.notes, *([f"dumps of version {unknown}: read as 2.10"] if versions else [])),
    )


def _index_groups(dump: RankDump, by_rank: Mapping[int, RankDump], groups: _Groups) -> dict[str, int]:
    """Index of each group that a dump names. If no dump lists the members, they are the ranks with entries of it."""
    named = {
        group.name: groups.add(
            Group(name=_label(group.name, group.desc), members=group.members, uid=group.name),
            (group.name, group.members),
        )
        for group in dump.groups.values()
        if group.members
    }
    for entry in dump.entries:
        if entry.group not in named:
            named[entry.group] = _index_unlisted(entry, by_rank, groups)
    return named


def _index_unlisted(entry: DumpEntry, by_rank: Mapping[int, RankDump], groups: _Groups) -> int:
    key = (entry.group, ())
    if key in groups.index:
        return groups.index[key]
    world = entry.desc in WORLD_NAMES
    members = (
        rank for rank, dump in by_rank.items() if world or any(other.group == entry.group for other in dump.entries)
    )
    label = _label(entry.group, entry.desc)
    return groups.add(Group(name=label, members=tuple(sorted(members)), complete=False, uid=entry.group), key)


def _label(name: str, desc: str) -> str:
    return desc if desc and desc != "undefined" else f"group {name}"


def _shape(dump: RankDump) -> _Shape:
    return tuple(sorted(dump.status)), tuple(sorted(group.desc or name for name, group in dump.groups.items()))


def _numbers_by_shape(by_rank: Mapping[int, RankDump]) -> dict[_Shape, dict[str, str]]:
    """Shape -> number of a group on the ranks of this shape -> its description, by majority."""
    votes: dict[_Shape, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for dump in by_rank.values():
        ballot = votes[_shape(dump)]
        for local_id, desc in {(entry.local_id, entry.desc or entry.group) for entry in dump.entries}:
            ballot[local_id][desc] += 1
    return {
        shape: {local_id: counts.most_common(1)[0][0] for local_id, counts in ballot.items()}
        for shape, ballot in votes.items()
    }


def _rank(
    rank: int, dump: RankDump, named: dict[str, int], numbers: dict[_Shape, dict[str, str]], groups: _Groups
) -> RankEvidence:
    index_of = _index_by_number(dump, named, numbers.get(_shape(dump), {}))
    statuses = {index_of[local_id]: status for local_id, status in dump.status.items() if local_id in index_of}
    fronts = dict(_fronts_by_entries(dump, named, groups))
    for index, status in statuses.items():
        if groups.groups[index].name not in groups.with_transfers:
            newest_ns = fronts[index].entered_ns if index in fronts else 0
            fronts[index] = Front(
                entered=max(status.enqueued, 0), completed=max(status.completed, 0), entered_ns=newest_ns
            )
    completed = {index: status.completed for index, status in statuses.items()}
    pending = tuple(_pending(dump, named, completed, groups))
    pending = (*_not_recorded(fronts, pending), *pending)
    return RankEvidence(rank=rank, fronts=fronts, pending=pending, recorder=dump.source)


def _index_by_number(dump: RankDump, named: dict[str, int], described: dict[str, str]) -> dict[str, int]:
    """The rank's own number of a group -> index of the group, from its entries, those of its peers, or the order of
    creation."""
    found = {entry.local_id: named[entry.group] for entry in dump.entries}
    by_desc: dict[str, list[str]] = defaultdict(list)
    for name, group in dump.groups.items():
        if name in named:
            by_desc[group.desc or name].append(name)
    for local_id in dump.status:
        same = by_desc.get(described.get(local_id, ""), [])
        if local_id not in found and len(same) == 1:
            found[local_id] = named[same[0]]
    return _in_order(dump, named) | found


def _in_order(dump: RankDump, named: dict[str, int]) -> dict[str, int]:
    """The rank's own number of a group -> index of the group, from the order of creation. Empty if it is not known.

    Groups are numbered in the order of creation. If all names are numbers, too, both orders are the same, unless the
    entries show otherwise.
    """
    names, ids = list(dump.groups), list(dump.status)
    if len(names) != len(ids) or not all(text.isdecimal() and len(text) < MAX_DIGITS for text in (*names, *ids)):
        return {}
    pairs = dict(zip(sorted(ids, key=int), sorted(names, key=int), strict=True))
    agrees = all(pairs.get(entry.local_id, entry.group) == entry.group for entry in dump.entries)
    return {local_id: named[name] for local_id, name in pairs.items() if name in named} if agrees else {}


def _fronts_by_entries(dump: RankDump, named: dict[str, int], groups: _Groups) -> Iterator[tuple[int, Front]]:
    """Index and front of each group, from the entries alone: dumps of old versions have no status."""
    entries: dict[int, list[DumpEntry]] = defaultdict(list)
    for entry in dump.entries:
        index = named[entry.group]
        if groups.groups[index].name not in groups.with_transfers:
            entries[index].append(entry)
    for index, rows in entries.items():
        entered = max(entry.seq for entry in rows)
        completed = min((entry.seq for entry in rows if not entry.done), default=entered + 1) - 1
        yield index, Front(entered=entered, completed=completed, entered_ns=max(entry.created_ns for entry in rows))


def _pending(dump: RankDump, named: dict[str, int], completed: dict[int, int], groups: _Groups) -> Iterator[Pending]:
    for entry in dump.entries:
        index = named[entry.group]
        if entry.done or (not entry.is_transfer and entry.seq <= completed.get(index, -1)):
            continue
        members = groups.groups[index].members
        known = entry.is_transfer and groups.groups[index].complete and 0 <= entry.peer < len(members)
        yield Pending(
            group=index,
            seq=entry.seq,
            op=entry.op,
            is_transfer=entry.is_transfer,
            peer=members[entry.peer] if known else WHOLE_GROUP,
            signature=f"{entry.op} {entry.sizes}" if entry.sizes else "",
            since_ns=entry.created_ns,
        )


def _not_recorded(fronts: Mapping[int, Front], pending: Sequence[Pending]) -> Iterator[Pending]:
    """Operations that are pending according to the status and older than all entries: the buffer was too small."""
    oldest: dict[int, int] = {}
    for op in pending:
        oldest[op.group] = min(op.seq, oldest.get(op.group, op.seq))
    for index, front in fronts.items():
        if front.completed + 1 < oldest.get(index, front.entered + 1):
            yield Pending(group=index, seq=front.completed + 1, op=NAMELESS)


def _world_size(by_rank: Mapping[int, RankDump], groups: _Groups) -> int:
    """One more than the highest rank that is named anywhere. 0 if only file names show it and it is implausible."""
    named = max((max(group.members, default=-1) for group in groups.groups), default=-1)
    highest = max(named, *by_rank)
    return 1 + highest if named >= 0 else plausible_size(1 + highest, len(by_rank))
