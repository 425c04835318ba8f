"""Logs of ranks as evidence, see ``log_lines.py``.

A log is never complete: a rank prints the groups in which it timed out, and the default group. So all ranks are
*partial*, and a group that is not the default one has only the members that print it.

    rank 0   timeout in default_pg #50                            waits
    rank 2   default_pg: enqueued 49, completed 49                late, but it may wait in a group that it did not print
    rank 3   the same                                             likewise: one of them may be the other's victim

A group is used to compare ranks only if its members agree: the places are in the order of ranks, and no member has
completed what another reports as timed out. (Older versions of torch give several groups one name.) Otherwise its
operations only show that their ranks wait. The same holds for transfers, whose numbers advance unevenly.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
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
    plausible_size,
)
from diagnose.hang.first_failure import CONSEQUENCES, INTERRUPTIONS, ON_PURPOSE
from diagnose.hang.sources.log_lines import EQUAL_SIZES, TRANSFERS, LoggedWork
from diagnose.hang.sources.read_logs import UNLINKED, GroupLog, JobLog, RankLog, is_world
from telemetry.errors import UnreadableError

MIXED_NAMES = ("pp", "pipeline", "pipeline_model_parallel_group", "mesh_pp")
"""Descriptions of groups that carry transfers, whose counts are not comparable."""
WORLD = "default_pg"
KILLED = ("SIGKILL", "SIGSEGV", "SIGBUS")
"""Ends that need no explanation by the rank's own lines. Without such lines, ``exit 1`` may be a lost peer."""
_WAITED = "Timed out waiting"
"""Gloo names no group and no number: the rank waited in communication."""
_UNCAUGHT = re.compile(r"\[rank\d+\]: ")
_WEAK = ("", "python-traceback", "terminated", "segfault")
"""Faults that alone show no cause: a process that aborts prints them, too."""


@dataclass(slots=True, eq=False)
class _Groups(GroupTable):
    by_uid: dict[str, int] = field(default_factory=dict)
    """Groups whose numbers are comparable between members."""
    furthest: dict[int, int] = field(default_factory=dict)
    """By index: the largest number that a member has completed. A member that has not, and reports no timeout, may
    only have printed its counts earlier."""
    ambiguous: set[str] = field(default_factory=set)


def evidence_from_logs(job: JobLog) -> HangEvidence:
    """The content of the logs, rank by rank.

    Raises:
        UnreadableError: no line of any rank.
    """
    if not job.ranks:
        raise UnreadableError(
            f"the {job.num_files} log files name no rank, or say nothing of a stall",
            hint="torch 2.2 and newer print [rankN]: before each line. Give each rank a file with its rank in the name",
        )
    world_size, is_guessed = _world_size(job)
    groups = _Groups()
    for uid in _uids(job):
        _add_group(uid, job, world_size, groups)
    first_timeout_ns = min((at_ns for log in job.ranks.values() for at_ns in _timeouts(log)), default=0)
    ranks = {rank: _rank(rank, log, groups, first_timeout_ns) for rank, log in sorted(job.ranks.items())}
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
    if groups.ambiguous:
        named = ", ".join(f"PG {uid}" if uid else "groups without a name" for uid in sorted(groups.ambiguous)[:5])
        yield f"log: ranks are not compared in {named}: several groups may have this name"


def _world_size(job: JobLog) -> tuple[int, bool]:
    """The number of ranks, and whether it is a guess. Sizes of smaller groups are no help."""
    named = job.highest + 1
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
    return (at_ns for group in log.groups.values() for _, at_ns in group.works.values() if at_ns)


def _add_group(uid: str, job: JobLog, world_size: int, groups: _Groups) -> None:
    """A group of which members can be compared. Others are left out of ``by_uid``."""
    logs = {rank: log.groups[uid] for rank, log in job.ranks.items() if uid in log.groups}
    desc = next((log.desc for log in logs.values() if log.desc), "")
    of_all = is_world(uid, desc) or uid == UNLINKED
    if any(work.op in TRANSFERS for log in logs.values() for work, _ in log.works.values()) or _is_mixed(desc):
        return
    agrees = _agree_unlinked(logs) if uid == UNLINKED else of_all or _agree(logs)
    if not agrees:
        groups.ambiguous.add(uid)
        return
    members = range(world_size) if of_all and world_size else sorted(logs)
    sizes = {work.group_size for log in logs.values() for work, _ in log.works.values()} - {0}
    name = WORLD if of_all else desc or f"group {uid}"
    complete = (of_all and world_size > 0) or sizes == {len(members)}
    group = Group(name=name, members=tuple(members), complete=complete, uid=uid)
    groups.by_uid[uid] = index = groups.add(group, (uid, ()))
    groups.furthest[index] = max(log.completed for log in logs.values())


def _is_mixed(desc: str) -> bool:
    return desc.lower() in MIXED_NAMES


def _agree(logs: Mapping[int, GroupLog]) -> bool:
    """Places in the order of ranks, and no member that completed what another reports as timed out."""
    places = [log.place for _, log in sorted(logs.items())]
    in_order = all(first < second for first, second in pairwise(places))
    completed = max((log.completed for log in logs.values()), default=-1)
    oldest = [min(log.works) for log in logs.values() if log.works]
    return in_order and (not oldest or completed < min(oldest) == max(oldest))


def _agree_unlinked(logs: Mapping[int, GroupLog]) -> bool:
    """Whether all report the same operation: else they are in several groups."""
    return len({(log.works[min(log.works)][0].seq, log.works[min(log.works)][0].op) for log in logs.values()}) == 1


def _rank(rank: int, log: RankLog, groups: _Groups, first_timeout_ns: int) -> RankEvidence:
    fronts: dict[int, Front] = {}
    pending: list[Pending] = []
    for uid, of_group in log.groups.items():
        index = groups.by_uid.get(uid)
        is_one = index is not None and uid != UNLINKED and (groups.groups[index].complete or not uid.isdecimal())
        ops = [_timed_out(work, at_ns, index, is_one) for work, at_ns in _open_works(of_group)]
        if index is not None:
            fronts[index] = _front(of_group)
            behind = groups.furthest.get(index, 0) > of_group.completed
            pending += ops or ([] if behind else _counted(of_group, index))
        else:
            alone = Group(name=of_group.desc or f"group {uid}", members=(rank,), complete=False, uid=uid)
            place = groups.add(alone, (uid, (rank,)))
            pending += [_alone(op, place) for op in ops or _counted(of_group, place)]
    process = Process.DEAD if _died(log, first_timeout_ns) else Process.UNKNOWN
    return RankEvidence(
        rank=rank,
        host=log.host,
        process=process,
        died_ns=log.ended_ns if process is Process.DEAD else 0,
        ended_by=_manner(log) if process is Process.DEAD else "",
        fronts=fronts,
        pending=tuple(sorted(pending, key=lambda op: (not op.since_ns, op.since_ns))),
        on_host=False if not pending and any(_WAITED in line.text for line in log.faults) else None,
        log=tuple(log.faults),
        partial=True,
    )


def _open_works(log: GroupLog) -> list[tuple[LoggedWork, int]]:
    """The oldest operation that timed out and has not ended."""
    is_open = [work for seq, work in sorted(log.works.items()) if not log.has_counts or seq > log.completed]
    return is_open[:1]


def _timed_out(work: LoggedWork, at_ns: int, index: int | None, is_one_group: bool) -> Pending:
    """Members of one group must issue the same. Groups that may be several are not compared."""
    sizes = f" {work.numel_in}/{work.numel_out}" if work.op in EQUAL_SIZES and work.numel_in >= 0 else ""
    return Pending(
        group=-1 if index is None else index,
        seq=work.seq,
        op=work.op,
        is_transfer=work.op in TRANSFERS,
        signature=f"{work.op}{sizes}" if is_one_group else "",
        since_ns=max(at_ns - work.ran_ns, 0) if at_ns and work.ran_ns else 0,
    )


def _counted(log: GroupLog, index: int) -> list[Pending]:
    """By the counts alone: the rank did not report a timeout."""
    completed = max(log.completed, 0)
    return [Pending(group=index, seq=completed + 1, op=NAMELESS)] if log.enqueued > completed else []


def _alone(op: Pending, group: int) -> Pending:
    """It shows that the rank waits, not for whom."""
    return Pending(group=group, seq=op.seq, op=op.op, is_transfer=True, peer=WHOLE_GROUP, since_ns=op.since_ns)


def _front(log: GroupLog) -> Front:
    oldest = min(log.works, default=0)
    completed = max(log.completed, 0) if log.has_counts else max(oldest - 1, 0)
    entered = max(log.enqueued, max(log.works, default=0), 0)
    return Front(entered=entered, completed=completed, least_entered=not log.has_counts)


def _died(log: RankLog, first_timeout_ns: int) -> bool:
    """Whether it ended for a reason of its own, before any rank gave up. A rank that reports a timeout or a lost peer
    is a victim, whatever ended it; so is one that its launcher or scheduler ended."""
    faults = {line.fault for line in log.faults}
    if any(log.groups[uid].works for uid in log.groups) or faults & set(CONSEQUENCES):
        return False
    if log.ended_by in (*ON_PURPOSE, "SIGABRT"):
        return False
    if any(name in line.text for line in log.faults for name in INTERRUPTIONS):
        return False
    ended_ns = log.ended_ns or max((line.at_ns for line in log.faults if line.fault not in _WEAK), default=0)
    if first_timeout_ns and not 0 < ended_ns < first_timeout_ns:
        return False
    has_own_fault = bool(faults - set(_WEAK))
    return log.ended_by in KILLED or (has_own_fault and (bool(log.ended_by) or _is_uncaught(log)))


def _is_uncaught(log: RankLog) -> bool:
    """Whether torch printed the exception that ended the process, each line behind ``[rankN]: ``."""
    own = [line for line in log.faults if _UNCAUGHT.match(line.text)]
    return {"python-traceback"} < {line.fault for line in own}


def _manner(log: RankLog) -> str:
    """How it ended: by the launcher's table, else by its own fault."""
    named = Counter(line.fault for line in log.faults if line.fault not in _WEAK)
    return log.ended_by or next(iter(named), "")


def _add_joined(job: JobLog, ranks: dict[int, RankEvidence], groups: _Groups, world_size: int) -> None:
    """Ranks that only a desync report names, if it is about the operation in which the default group is stuck."""
    index = next((at for uid, at in groups.by_uid.items() if groups.groups[at].name == WORLD), None)
    stuck = {op.seq for of_rank in ranks.values() for op in of_rank.pending if op.group == index and op.op != NAMELESS}
    for places, entered, completed in job.joined:
        if index is None or stuck != {entered + 1} or completed != entered:
            continue
        for rank in places:
            known = ranks.get(rank, RankEvidence(rank=rank, partial=True))
            if rank < world_size and index not in known.fronts:
                front = Front(entered=entered, completed=completed)
                ranks[rank] = RankEvidence(
                    rank=rank, host=known.host, process=known.process, died_ns=known.died_ns, log=known.log,
                    ended_by=known.ended_by, pending=known.pending, fronts={**known.fronts, index: front}, partial=True,
                )  # fmt: skip
