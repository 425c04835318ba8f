"""NCCL RAS and NCCL Inspector as evidence.

RAS counts what each rank has *launched* in each communicator. In a stalled job a rank that has launched more than
another member waits for it:

    communicator [0 1 2 3]      AllReduce launched: 51 51 51 50        0, 1, 2 wait in #51, rank 3 is late

Transfers are not counted, so a rank that is late may wait in one: all ranks are *partial*. Counts also differ for a
moment in a job that moves. A file is one sample; the socket is read twice (``is_same``).

Inspector counts what has *completed*, and may lose records. It shows no wait, and only contradicts other sources.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from diagnose.hang.evidence import (
    Front,
    Group,
    GroupTable,
    HangEvidence,
    Pending,
    Process,
    RankEvidence,
)
from diagnose.hang.job_size import plausible_size
from diagnose.hang.sources.communicators import (
    APART,
    TOGETHER,
    CommRank,
    Communicator,
    Member,
    checked,
    global_ranks,
)
from diagnose.ranges import fold_ranks, list_some
from telemetry.errors import UnreadableError
from telemetry.printable import one_line

RAS = "NCCL RAS"
INSPECTOR = "NCCL Inspector"
MAX_LINES = 10_000_000
MAX_LINE = 2**20
MAX_PROCESSES = 2**20
MOST_NAMED = 3


def evidence_from_ras(comms: Sequence[Communicator]) -> HangEvidence:
    """The evidence of RAS: the operations that each rank has launched.

    Raises:
        UnreadableError: the global ranks are unknown.
    """
    ranks_of = global_ranks(comms, RAS) if comms else {}
    groups = GroupTable()
    fronts: dict[int, dict[int, Front]] = defaultdict(dict)
    pending: dict[int, list[Pending]] = defaultdict(list)
    missing: dict[int, bool] = {}
    notes: list[str] = []
    for comm in comms:
        _add_missing(comm, ranks_of, missing)
        here = {ranks_of[one.member]: one for one in comm.ranks if not one.is_missing and one.counts}
        members = tuple(ranks_of[one.member] for one in sorted(comm.ranks, key=lambda one: one.rank))
        group = Group(
            name=f"communicator {comm.uid}", members=members, complete=len(members) == comm.size, uid=comm.uid
        )
        index = groups.add(group, (comm.uid, members))
        issued = {rank: _sum(one.counts) for rank, one in here.items()}
        if not _in_one_order(here.values()):
            notes.append(f"{RAS}: ranks {fold_ranks(here)} launched different operations in {group.name}")
            continue
        least = min(issued.values(), default=0)
        for rank, one in here.items():
            fronts[rank][index] = Front(entered=issued[rank], completed=0, least_completed=True)
            pending[rank] += _waiting_in(index, one, here.values(), least, issued[rank])
    dead = {rank for rank, is_dead in missing.items() if is_dead}
    silent = missing.keys() - dead
    if silent:
        notes.append(f"{RAS}: ranks {fold_ranks(silent)} give no answer")
    seen = fronts.keys() | missing.keys()
    hosts = {rank: member[0] for member, rank in ranks_of.items()}
    return HangEvidence(
        world_size=_size(comms, len(ranks_of)),
        groups=tuple(groups.groups),
        ranks={
            rank: RankEvidence(
                rank=rank,
                host=hosts.get(rank, ""),
                process=Process.DEAD if rank in dead else Process.UNKNOWN,
                fronts=fronts.get(rank, {}),
                pending=tuple(pending.get(rank, ())),
                gave_no_answer=rank in missing,
                partial=True,
            )
            for rank in sorted(seen)
        },
        notes=tuple(notes),
    )


def _size(comms: Iterable[Communicator], num_seen: int) -> int:
    return plausible_size(max((comm.size for comm in comms), default=0), num_seen)


def is_same(first: HangEvidence, second: HangEvidence) -> bool:
    """Whether no rank launched anything between two samples."""

    def fronts(evidence: HangEvidence) -> dict[int, dict[str, int]]:
        return {
            rank: {evidence.groups[index].uid: front.entered for index, front in of_rank.fronts.items()}
            for rank, of_rank in evidence.ranks.items()
        }

    return fronts(first) == fronts(second)


def _add_missing(comm: Communicator, ranks_of: Mapping[Member, int], missing: dict[int, bool]) -> None:
    for one in comm.ranks:
        if one.is_missing:
            rank = ranks_of[one.member]
            missing[rank] = missing.get(rank, False) or one.is_dead


def _counted(counts: Mapping[str, int]) -> dict[str, int]:
    return {name: count for name, count in counts.items() if name in TOGETHER or name in APART}


def _sum(counts: Mapping[str, int]) -> int:
    return sum(_counted(counts).values())


def _in_one_order(ranks: Iterable[CommRank]) -> bool:
    """Whether, of any two ranks, one has launched at least as much of everything: then all run the same program."""
    by_sum = sorted((_counted(one.counts) for one in ranks), key=lambda counts: sum(counts.values()))
    return all(
        first.get(name, 0) <= second.get(name, 0)
        for first, second in pairwise(by_sum)
        for name in first.keys() | second.keys()
    )


def _waiting_in(index: int, one: CommRank, all_ranks: Iterable[CommRank], least: int, issued: int) -> list[Pending]:
    """The operation in which a rank waits, if it is further than another rank. Empty if members need not leave it
    together."""
    last = min(all_ranks, key=lambda other: _sum(other.counts)).counts
    ahead = [name for name in TOGETHER if one.counts.get(name, 0) > last.get(name, 0)]
    if issued <= least or not ahead:
        return []
    op = (
        TOGETHER[ahead[0]] if len(ahead) == 1 and issued - least == one.counts[ahead[0]] - last.get(ahead[0], 0) else ""
    )
    return [Pending(group=index, seq=least + 1, op=op or "collective of all members")]


def evidence_from_inspector(texts: Iterable[tuple[str, bytes]]) -> HangEvidence:
    """The evidence of Inspector: the operations that each rank has completed.

    ``texts``: names and contents of the files, with one JSON object in each line.

    Raises:
        UnreadableError: no record of a collective, or the global ranks are unknown.
    """
    done: dict[tuple[str, int], dict[tuple[int, Member], dict[str, int]]] = {}
    num_bad, names = 0, []
    for name, text in texts:
        names.append(name)
        for line in text.splitlines()[:MAX_LINES]:
            try:
                if line.strip():
                    _add_record(done, json.loads(line[:MAX_LINE]))
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
                num_bad += 1
    if not done:
        where = f"record of NCCL Inspector in {list_some(names, MOST_NAMED)}" if names else "file of NCCL Inspector"
        hint = "accepted: the files with lines of JSON in the folder set in NCCL_INSPECTOR_DUMP_DIR"
        raise UnreadableError(f"no {where}", hint=hint)
    comms = [Communicator(uid=uid, size=size, ranks=tuple(_completed(found))) for (uid, size), found in done.items()]
    ranks_of = global_ranks(comms, INSPECTOR)
    groups = GroupTable()
    fronts: dict[int, dict[int, Front]] = defaultdict(dict)
    for comm in comms:
        members = tuple(ranks_of[one.member] for one in sorted(comm.ranks, key=lambda one: one.rank))
        complete = len(members) == comm.size
        group = Group(name=f"communicator {comm.uid}", members=members, complete=complete, uid=comm.uid)
        index = groups.add(group, (comm.uid, members))
        for one in comm.ranks:
            count = _sum(one.counts)
            fronts[ranks_of[one.member]][index] = Front(
                entered=count, completed=count, least_entered=True, least_completed=True
            )
    ranks = {rank: RankEvidence(rank=rank, fronts=of_rank, partial=True) for rank, of_rank in sorted(fronts.items())}
    notes = (f"{INSPECTOR}: {num_bad} lines are not records",) if num_bad else ()
    size = _size(comms, len(ranks))
    return HangEvidence(world_size=size, groups=tuple(groups.groups), ranks=ranks, notes=notes)


def _completed(found: Mapping[tuple[int, Member], Mapping[str, int]]) -> Iterator[CommRank]:
    for (rank, who), counts in found.items():
        yield CommRank(rank=rank, member=who, counts=counts)


def _add_record(done: dict[tuple[str, int], dict[tuple[int, Member], dict[str, int]]], record: Any) -> None:
    header, metadata, coll = record["header"], record["metadata"], record.get("coll_perf")
    if coll is None:
        return
    key = (str(header["id"])[:64], checked(header["n_ranks"]))
    who: Member = (one_line(str(metadata["hostname"])[:256], 255), checked(metadata["pid"], 2**31), 0)
    if key not in done and len(done) >= MAX_PROCESSES:
        return
    counts = done.setdefault(key, {}).setdefault((checked(header["rank"]), who), {})
    name = str(coll["coll"])[:40]
    if name in TOGETHER or name in APART:
        counts[name] = max(counts.get(name, 0), checked(coll["coll_sn"], 2**62))
