"""Logs of ranks as evidence, see ``log_lines.py``.

A log is never complete: a rank prints the groups in which it timed out, and the default group. So all ranks are
*partial*, and a group that is not the default one has only the members that print it.

    rank 0   timeout in default_pg #50                            waits
    rank 2   default_pg: enqueued 49, completed 49                late, but it may wait in a group that it did not print
    rank 3   the same                                             likewise: one of them may be the other's victim

A group is used to compare ranks only if its members agree: the places are in the order of ranks, all timed out in the
same operation, and no member has completed it. (Older versions of torch give several groups one name, or number
transfers together with collectives.) Otherwise its operations only show that their ranks wait. The same holds for
transfers, and for a log that holds more than one stall.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

from diagnose.hang.evidence import (
    NAMELESS,
    WHOLE_GROUP,
    Front,
    Group,
    GroupTable,
    HangEvidence,
    Pending,
    Process,
    RankEvidence,
)
from diagnose.hang.first_failure import CONSEQUENCES, INTERRUPTIONS, ON_PURPOSE
from diagnose.hang.job_size import check_num_ranks, plausible_size
from diagnose.hang.sources.job_log import UNLINKED, GroupLog, JobLog, RankLog
from diagnose.hang.sources.log_lines import EQUAL_SIZES, TRANSFERS, LoggedWork, is_world
from diagnose.ranges import list_some
from telemetry.errors import UnreadableError

WORLD = "default_pg"
MOST_NAMED = 3
FORMATS = (
    "accepted: the output of ranks or of their launcher, plain text or gzip. torch 2.2 and newer print [rankN]: before "
    "each line. Else give each rank a file with its rank in the name"
)
"""Hint for files without a rank."""
KILLED = ("SIGKILL", "SIGSEGV", "SIGBUS")
"""Signals that count as a death of the rank even if its own lines show no fault. ``exit 1`` alone may be caused by a
lost peer."""
ENDED_FROM_OUTSIDE = ("killed by signal: Terminated", "SignalException")
"""Errors of a rank whose launcher ends it and its workers."""
NEVER_NS = 2**62
_WAITED = "Timed out waiting"
"""Start of Gloo's message for a timeout. It has no group and no number, and only shows that the rank waited."""
_UNCAUGHT = re.compile(r"\[rank\d+\]: ")
_TRACEBACK = "python-traceback"
_WEAK = ("", _TRACEBACK, "terminated", "segfault")
"""Faults that alone show no cause: a process that aborts prints them, too."""


@dataclass(slots=True, eq=False)
class _Groups(GroupTable):
    by_uid: dict[str, int] = field(default_factory=dict)
    """Groups whose numbers are comparable between members."""
    furthest: dict[int, int] = field(default_factory=dict)
    """Index of a group -> the largest number that a member has completed. A member that has completed less, and reports
    no timeout, may only have printed its counts earlier."""
    ambiguous: set[str] = field(default_factory=set)


def evidence_from_logs(job: JobLog, num_ranks: int = 0) -> HangEvidence:
    """The evidence in logs. ``num_ranks``: number of ranks of the job. If it is 0, the logs must show it.

    Raises:
        UnreadableError: no line of any rank.
        UsageError: the logs name a rank that ``num_ranks`` excludes.
    """
    if not job.ranks:
        read = list_some(job.files, MOST_NAMED) if job.files else "any of the files"
        raise UnreadableError("; ".join([f"no rank and no stall in {read}", *job.notes[:MOST_NAMED]]), hint=FORMATS)
    world_size, is_guessed = _world_size(job, num_ranks)
    groups = _Groups()
    for uid in _uids(job):
        _add_group(uid, job, world_size, groups)
    first_timeout_ns = min((at_ns for log in job.ranks.values() for at_ns in _timeouts(log)), default=NEVER_NS)
    dead = set() if job.is_mixed else {rank for rank, log in job.ranks.items() if _died(log, first_timeout_ns)}
    ranks = {rank: _rank(rank, log, groups, is_dead=rank in dead) for rank, log in sorted(job.ranks.items())}
    if job.is_mixed:
        ranks = {rank: _without_names(of_rank) for rank, of_rank in ranks.items()}
    _add_joined(job, ranks, groups, world_size)
    return HangEvidence(
        world_size=world_size,
        groups=tuple(groups.groups),
        ranks=ranks,
        has_ended=any(log.ended_by for log in job.ranks.values()),
        guessed_size=is_guessed,
        notes=(*job.notes, *_notes(job, groups)),
    )


def _notes(job: JobLog, groups: _Groups) -> Iterator[str]:
    if job.num_unknown:
        yield f"log: {job.num_unknown} lines of unknown ranks were not used"
    if job.is_mixed:
        yield "log: the lines are of several stalls or attempts of the job. Give only the lines of the last one"
    elif groups.ambiguous:
        named = ", ".join(f"PG {uid}" for uid in sorted(groups.ambiguous)[:5])
        yield f"log: ranks are not compared in {named}, because their lines contradict each other on operation numbers"


def _world_size(job: JobLog, num_ranks: int) -> tuple[int, bool]:
    """The number of ranks, and whether it is a guess."""
    named = job.highest + 1
    if num_ranks:
        check_num_ranks(num_ranks, named, "log")
        return num_ranks, False
    sizes = set(job.sizes)
    for log in job.ranks.values():
        for uid, group in log.groups.items():
            if is_world(uid, group.desc):
                sizes.update(work.group_size for work, _ in group.works.values())
    stated = [size for size in sizes if named <= plausible_size(size, len(job.ranks))]
    return (max(stated), False) if stated else (plausible_size(named, len(job.ranks)), True)


def _uids(job: JobLog) -> list[str]:
    return sorted({uid for log in job.ranks.values() for uid in log.groups})


def _timeouts(log: RankLog) -> Iterator[int]:
    """Times at which the rank reported timeouts. 0 if a time is not known."""
    return (at_ns for group in log.groups.values() for _, at_ns in group.works.values())


def _add_group(uid: str, job: JobLog, world_size: int, groups: _Groups) -> None:
    """Add a group if its members can be compared. Other groups are left out of ``by_uid``."""
    logs = {rank: log.groups[uid] for rank, log in job.ranks.items() if uid in log.groups}
    desc = next((log.desc for log in logs.values() if log.desc), "")
    of_all = is_world(uid, desc)
    if uid == UNLINKED or any(log.has_transfers for log in logs.values()):
        return
    if job.is_mixed or not _agree(logs, of_all=of_all):
        groups.ambiguous.add(uid)
        return
    members = range(world_size) if of_all and world_size else sorted(logs)
    sizes = {work.group_size for log in logs.values() for work, _ in log.works.values()} - {0}
    name = WORLD if of_all else desc or f"group {uid}"
    complete = (of_all and world_size > 0) or sizes == {len(members)}
    places = tuple(log.place for _, log in sorted(logs.items()))
    places = () if complete or min(places) < 0 else places
    group = Group(name=name, members=tuple(members), complete=complete, uid=uid, places=places)
    groups.by_uid[uid] = index = groups.add(group, (uid, ()))
    groups.furthest[index] = max(log.completed for log in logs.values())


def _agree(logs: Mapping[int, GroupLog], *, of_all: bool) -> bool:
    """Whether places are in the order of ranks, all timed out in one operation, and no member has completed it."""
    places = [log.place for _, log in sorted(logs.items())]
    in_order = places == sorted(logs) if of_all else all(first < second for first, second in pairwise(places))
    completed = max((log.completed for log in logs.values()), default=-1)
    oldest = [min(log.works) for log in logs.values() if log.works]
    return in_order and (not oldest or completed < min(oldest) == max(oldest))


def _rank(rank: int, log: RankLog, groups: _Groups, *, is_dead: bool) -> RankEvidence:
    fronts: dict[int, Front] = {}
    pending: list[Pending] = []
    for uid, of_group in log.groups.items():
        index = groups.by_uid.get(uid)
        is_one = index is not None and (groups.groups[index].complete or not uid.isdecimal())
        ops = [_timed_out(work, at_ns, index, is_one) for work, at_ns in _open_works(of_group)]
        if index is not None:
            if of_group.has_counts or of_group.works:
                fronts[index] = _front(of_group)
            behind = groups.furthest.get(index, 0) > of_group.completed
            pending += ops or ([] if behind else _counted(of_group, index))
        else:
            name = of_group.desc or (f"group {uid}" if uid else "an unknown group")
            alone = Group(name=name, members=(rank,), complete=False, uid=uid)
            place = groups.add(alone, (uid, (rank,)))
            pending += [_alone(op, place) for op in ops or _counted(of_group, place)]
    return RankEvidence(
        rank=rank,
        host=log.host,
        process=Process.DEAD if is_dead else Process.UNKNOWN,
        died_ns=log.ended_ns if is_dead else 0,
        ended_by=_manner(log) if is_dead else "",
        fronts=fronts,
        pending=tuple(sorted(pending, key=lambda op: (not op.since_ns, op.since_ns))),
        on_host=False if not pending and any(_WAITED in line.text for line in log.faults) else None,
        log=tuple(log.faults),
        partial=True,
    )


def _without_names(of_rank: RankEvidence) -> RankEvidence:
    """The rank with operations that may be of an earlier stall. They contradict no other source."""
    return replace(of_rank, pending=tuple(replace(op, op=NAMELESS) for op in of_rank.pending))


def _open_works(log: GroupLog) -> list[tuple[LoggedWork, int]]:
    """The oldest operation that timed out and has not ended, in a list of at most one."""
    is_open = [work for seq, work in sorted(log.works.items()) if not log.has_counts or seq > log.completed]
    return is_open[:1]


def _timed_out(work: LoggedWork, at_ns: int, index: int | None, is_one_group: bool) -> Pending:
    """A pending operation that timed out.

    It gets a signature only if its group is certainly a single group: only members of one group must issue the same.
    """
    sizes = f" {work.numel_in}/{work.numel_out}" if work.op in EQUAL_SIZES and work.numel_in >= 0 else ""
    is_known = is_one_group and work.op != NAMELESS
    return Pending(
        group=-1 if index is None else index,
        seq=work.seq,
        op=work.op,
        is_transfer=work.op in TRANSFERS,
        signature=f"{work.op}{sizes}" if is_known else "",
        since_ns=max(at_ns - work.ran_ns, 0) if at_ns and work.ran_ns else 0,
    )


def _counted(log: GroupLog, index: int) -> list[Pending]:
    """The pending operation according to the counts, for a rank that did not report a timeout."""
    completed = max(log.completed, 0)
    return [Pending(group=index, seq=completed + 1, op=NAMELESS)] if log.enqueued > completed else []


def _alone(op: Pending, group: int) -> Pending:
    """``op`` as a transfer with an unknown peer: it shows that the rank waits, but not for which rank."""
    return Pending(group=group, seq=op.seq, op=op.op, is_transfer=True, peer=WHOLE_GROUP, since_ns=op.since_ns)


def _front(log: GroupLog) -> Front:
    oldest = min(log.works, default=0)
    completed = max(log.completed, 0) if log.has_counts else max(oldest - 1, 0)
    entered = max(log.enqueued, max(log.works, default=0), 0)
    return Front(entered=entered, completed=completed, least_entered=not log.has_counts)


def _died(log: RankLog, first_timeout_ns: int) -> bool:
    """Whether a rank ended before any rank reported a timeout, and no other rank or process caused it.

    A rank that reports a timeout or a lost peer is a victim, whatever ended it. A rank that its launcher or scheduler
    ended is a victim, too.
    """
    faults = {line.fault for line in log.faults}
    if any(log.groups[uid].works for uid in log.groups) or faults & set(CONSEQUENCES):
        return False
    if log.ended_by in (*ON_PURPOSE, "SIGABRT"):
        return False
    if any(name in line.text for line in log.faults for name in (*INTERRUPTIONS, *ENDED_FROM_OUTSIDE)):
        return False
    ended_ns = log.ended_ns or max((line.at_ns for line in log.faults if line.fault not in _WEAK), default=0)
    if first_timeout_ns != NEVER_NS and not 0 < ended_ns < first_timeout_ns:
        return False
    has_own_fault = bool(faults - set(_WEAK))
    return log.ended_by in KILLED or (has_own_fault and (bool(log.ended_by) or _is_uncaught(log)))


def _is_uncaught(log: RankLog) -> bool:
    """Whether torch printed the exception that ended the process, each line behind ``[rankN]: ``."""
    own = [line.fault for line in log.faults if _UNCAUGHT.match(line.text)]
    return len(own) > 1 and own[0] == _TRACEBACK != own[-1]


def _manner(log: RankLog) -> str:
    """How the rank ended, from the launcher's table, else from its own faults."""
    named = Counter(line.fault for line in log.faults if line.fault not in _WEAK)
    return log.ended_by or next(iter(named), "")


def _add_joined(job: JobLog, ranks: dict[int, RankEvidence], groups: _Groups, world_size: int) -> None:
    """Add ranks that only a desync report names, if it is about the operation in which the default group is stuck, and
    no other group is stuck at that number."""
    index = next((at for uid, at in groups.by_uid.items() if groups.groups[at].name == WORLD), None)
    pending = [op for of_rank in ranks.values() for op in of_rank.pending]
    stuck = {op.seq for op in pending if op.group == index and op.op != NAMELESS}
    elsewhere = {op.seq for op in pending if op.group != index}
    for places, entered, completed in job.joined:
        if index is None or stuck != {entered + 1} or completed != entered or entered + 1 in elsewhere:
            continue
        for rank in places:
            known = ranks.get(rank, RankEvidence(rank=rank, partial=True))
            if rank < world_size and index not in known.fronts:
                front = Front(entered=entered, completed=completed)
                ranks[rank] = RankEvidence(
                    rank=rank, host=known.host, process=known.process, died_ns=known.died_ns, log=known.log,
                    ended_by=known.ended_by, pending=known.pending, fronts={**known.fronts, index: front}, partial=True,
                )  # fmt: skip
