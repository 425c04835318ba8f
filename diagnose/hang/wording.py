"""The verdict as text: one line for the engineer on call, and the next step. Past tense once the job has ended."""

from collections.abc import Collection, Iterable
from enum import StrEnum

from diagnose.hang.evidence import CutOff, HangEvidence, Process
from diagnose.hang.first_failure import first_to_fail
from diagnose.hang.mismatch import Mismatch
from diagnose.hang.place import place_of
from diagnose.hang.waits import Wait, WaitGraph
from diagnose.ranges import name_some, named_ranks
from telemetry.stages import Stage


class Cause(StrEnum):
    """The state of the initiating ranks."""

    NEVER_ENTERED = "never entered"
    ELSEWHERE = "elsewhere"
    SILENT = "silent"
    UNDECIDED = "undecided"
    DEVICE = "device"
    STOPPED = "stopped"
    DEAD = "dead"
    DIED_TOGETHER = "died together"
    FELL_OVER_MISMATCH = "fell over mismatch"
    MISSING = "missing"
    MISMATCH = "mismatch"
    LEFT_OUT = "left out"
    ALL_ENTERED = "all entered"
    CUT_OFF = "cut off"
    CIRCLE = "circle"
    NOTHING = "nothing"


READ_STACK = (
    "read the stack of {ranks}{host} to find the blocked Python code. If no stack was collected, run on the host: "
    "py-spy dump --pid PID. Then restart without this host"
)
NEXT_STEPS = {
    Cause.NEVER_ENTERED: READ_STACK,
    Cause.ELSEWHERE: READ_STACK,
    Cause.SILENT: "take a stack or a dump of {ranks}{host} (--stacks, --dumps), and read the end of the log",
    Cause.UNDECIDED: "add evidence{of_ranks}: {sources}",
    Cause.DEVICE: "check the GPU of {ranks}{host} (Xid in dmesg, nvidia-smi -q) and the links. Drain the host",
    Cause.STOPPED: "resume {ranks}{host} with kill -CONT, or detach the debugger",
    Cause.DEAD: "read the end of the log of {ranks}{host}, and dmesg of the host (OOM killer, Xid). Restart without "
    "the host",
    Cause.DIED_TOGETHER: "find what ended these ranks: read the errors in their logs and in the log of the launcher, "
    "dmesg of their hosts (OOM killer), and the log of the scheduler",
    Cause.FELL_OVER_MISMATCH: "compare the collective of {ranks} with those of the peers: a branch, a shape or a batch "
    "differs. Run this diagnosis again when all records have arrived",
    Cause.MISSING: "check whether the processes{of_ranks} still exist, and take their dumps (--dumps)",
    Cause.MISMATCH: "compare the code path of {ranks} with its peers: a branch, a shape or a batch differs",
    Cause.LEFT_OUT: "find the branch where {ranks} skips a collective that its peers issue",
    Cause.ALL_ENTERED: "check the links between the hosts of the group, and the NCCL log of its ranks "
    "(NCCL_DEBUG=INFO)",
    Cause.CIRCLE: "take the stacks of these ranks (--stacks), and find where they issue their collectives in "
    "different orders",
    Cause.NOTHING: "if the job makes no progress, take new evidence of all ranks while it hangs: dumps (--dumps) and "
    "stacks (--stacks). If it has failed, add the logs (--logs)",
}
AFTER_THE_END = {
    Cause.NEVER_ENTERED: "read the stack of {ranks}{host} to find where the Python code was blocked. Then restart "
    "without this host",
    Cause.STOPPED: "find what stopped {ranks}{host}: a SIGSTOP or a debugger",
    Cause.MISSING: "read the ends of the logs{of_ranks} (--logs), and dmesg of the hosts (OOM killer, Xid)",
}
"""Replaces entries of ``NEXT_STEPS`` that need a living process."""
MORE_SOURCES = {
    "flight recorder": "flight-recorder dumps (--dumps)",
    "stacks": "stacks (--stacks, from py-spy dump --pid PID > rankN.txt)",
    "log": "logs (--logs)",
}
"""Name of a source -> what the user can add if it is missing."""


def headline(
    evidence: HangEvidence, graph: WaitGraph, ranks: tuple[int, ...], cause: Cause, mismatch: Mismatch | None
) -> str:
    """The verdict in one line."""
    subject, is_are = named(ranks), _be(evidence, ranks)
    match cause:
        case Cause.NEVER_ENTERED:
            awaited = _awaited(evidence, graph, ranks)
            return f"{subject} {is_are} behind: never entered {awaited}{_where(evidence, ranks)}"
        case Cause.DEVICE:
            ops = [graph.blocked[rank] for rank in ranks if rank in graph.blocked][:2]
            entered = " and ".join(f"{op.op} #{op.seq} of {_group(evidence, op.group)}" for op in ops)
            return f"{subject} {is_are} stuck: entered {entered} and did not finish it, but others did"
        case Cause.STOPPED:
            others = _others_wait(evidence, graph, ranks)
            return f"{subject} {is_are} stopped (SIGSTOP or a debugger){others}{_where(evidence, ranks)}"
        case Cause.DEAD:
            return f"{_death(evidence, ranks)}{_others_wait(evidence, graph, ranks)}"
        case Cause.SILENT:
            awaited = _awaited(evidence, graph, ranks)
            others = f"all other ranks {evidence.tense('wait', 'waited')}, in {awaited}"
            return f"{subject} {is_are} behind: no evidence that it entered a collective, and {others}"
        case Cause.ELSEWHERE:
            others = f"all other ranks {evidence.tense('wait', 'waited')} in communication"
            return f"{subject} {is_are} behind: {others}{_where(evidence, ranks)}"
        case Cause.UNDECIDED:
            return _undecided(evidence, graph)
        case Cause.LEFT_OUT:
            where = _where(evidence, ranks)
            return f"{subject} {is_are} out of step: skipped an operation that its peers issued{where}"
        case Cause.MISMATCH if mismatch is not None:
            return _mismatch(evidence, mismatch, subject)
        case _:
            return _no_rank_named(evidence, graph, cause)


def _mismatch(evidence: HangEvidence, mismatch: Mismatch, subject: str) -> str:
    members = _group(evidence, mismatch.group)
    if mismatch.odd:
        issued = f"{subject} issued {mismatch.theirs} as #{mismatch.seq} of {members}"
        return f"{issued}, but its peers issued {mismatch.others}"
    disagree = evidence.tense("disagree", "disagreed")
    return f"members of {members} {disagree} on operation #{mismatch.seq}: {mismatch.others}; there is no majority"


def _no_rank_named(evidence: HangEvidence, graph: WaitGraph, cause: Cause) -> str:
    wait = evidence.tense("wait", "waited")
    match cause:
        case Cause.ALL_ENTERED:
            (group, seq), ranks = next(iter(graph.stuck.items()))
            op = graph.blocked[ranks[0]].op
            entered = f"all of {_group(evidence, group)} entered {op} #{seq} and none finished it"
            return f"{entered}: the network or a device {_be(evidence, ())} stuck"
        case Cause.DIED_TOGETHER:
            return f"{named(first_to_fail(evidence))} died together: it is unknown which one died first"
        case Cause.FELL_OVER_MISMATCH:
            death = _death(evidence, first_to_fail(evidence))
            mismatch = "after a collective mismatch: a peer sent other data than expected"
            return f"{death}, {mismatch}; it is unknown which rank is wrong"
        case Cause.MISSING:
            late = tuple(sorted(graph.roots()))
            them, they = ("them", "they") if len(late) > 1 else ("it", "it")
            awaited = f"others {wait} for {them} in {_awaited(evidence, graph, late)}"
            behind = evidence.tense("may be behind", "may have been behind")
            stuck = f"the network or a device {_be(evidence, ())} stuck"
            return f"undecided: {named(late)} left no evidence, and {awaited}: {they} {behind}, or {stuck}"
        case Cause.CIRCLE:
            circle = named(sorted({rank for blocked in graph.waits.values() for rank in blocked.on}))
            order = "it is unknown which rank issued its operations in a wrong order"
            return f"{circle} {wait} for each other (deadlock); {order}"
        case _:
            known = "no rank waits in an operation: nothing is stalled in communication"
            return known if evidence.ranks else "nothing is stalled"


def _undecided(evidence: HangEvidence, graph: WaitGraph) -> str:
    """Where ranks wait, and which ranks may block them."""
    if not graph.blocked and all(of_rank.on_host is not False for of_rank in evidence.ranks.values()):
        return "undecided: no rank is known to wait for another"
    waiting = {rank for rank in evidence.ranks if rank in graph.blocked or evidence.ranks[rank].on_host is False}
    wait = evidence.tense("wait" if len(waiting) > 1 else "waits", "waited")
    others = sorted((set(range(evidence.world_size)) | evidence.ranks.keys()) - waiting)
    first = min(graph.waits.values(), key=lambda one: (one.group, one.seq), default=None)
    where = f" in {first.op} #{first.seq} of {_group(evidence, first.group)}" if first else ""
    unseen = "other ranks that left no evidence" if evidence.guessed_size else ""
    held = " and ".join(filter(None, [named(others) if others else "", unseen]))
    them = "them" if len(waiting) > 1 else "it"
    rest = f"{held} may block {them}, or may wait too" if held else "all ranks of the job wait"
    return f"undecided: {named(sorted(waiting))} {wait}{where}; {rest}"


def next_step(evidence: HangEvidence, ranks: tuple[int, ...], cause: Cause, unclear: Collection[int] = ()) -> str:
    """Instructions for the engineer. ``unclear``: ranks for which more evidence is needed."""
    if cause is Cause.FELL_OVER_MISMATCH:
        ranks = first_to_fail(evidence)
    hosts = _hosts(evidence, ranks)
    known = {**NEXT_STEPS, **AFTER_THE_END} if evidence.has_ended else NEXT_STEPS
    of_ranks = f" of {named(unclear)}" if unclear else ""
    sources = _more_sources(evidence, unclear)
    size = ". State the number of ranks (--world-size)" if cause is Cause.UNDECIDED and evidence.guessed_size else ""
    host = f" (host {hosts})" if hosts else ""
    return known[cause].format(ranks=named(ranks), host=host, of_ranks=of_ranks, sources=sources) + size


def _more_sources(evidence: HangEvidence, unclear: Collection[int]) -> str:
    """Text that asks for sources that do not show all unclear ranks. Stacks cannot be taken of a job that has ended."""
    shown = {source.name: set(source.ranks) for source in evidence.sources}
    absent = [name for name in MORE_SOURCES if name not in shown or not shown[name].issuperset(unclear)]
    useful = [name for name in absent or MORE_SOURCES if not (evidence.has_ended and name == "stacks")]
    return " or ".join(MORE_SOURCES[name] for name in useful)


def cut_off_headline(evidence: HangEvidence, cut_off: CutOff) -> str:
    """The verdict in one line, of a stall that a lost link explains."""
    outage, patience = cut_off.outage, evidence.network.patience
    lost, down = f"{outage.device} of {outage.host} {outage.manner}", f"{cut_off.down_s:.1f} s"
    ranks = f"which cut off {named(cut_off.ranks)}"
    if evidence.network.gave_up:
        return f"{lost} for {down}, {ranks}: the job waited and then aborted"
    if not outage.lasts:
        is_about = evidence.tense("is about", "was about")
        return f"{lost} for {down} and is up again, {ranks}: the job {is_about} to continue"
    if evidence.has_ended:
        return f"{lost}, {ranks}: the job waited for the link until the job ended"
    until = f"; the job aborts after {patience.seconds:g} s ({patience.setting})" if patience.seconds else ""
    return f"{lost} {down} ago, {ranks}: the job waits for the link{until}"


def cut_off_next_step(cut_off: CutOff) -> str:
    """Instructions for the engineer, for a stall that a lost link explains."""
    outage = cut_off.outage
    check = f"on {outage.host}, check dmesg, ethtool -S {outage.device}, the cable and the switch port"
    if cut_off.is_flap:
        return f"wait: the job continues if the link returns in time. If it stays down: {check}"
    return f"{check}. Restart without the host"


def _be(evidence: HangEvidence, ranks: tuple[int, ...]) -> str:
    return evidence.tense("are", "were") if len(ranks) > 1 else evidence.tense("is", "was")


def named(ranks: Iterable[int]) -> str:
    """``ranks 1, 5``, or ``the missing ranks`` without ranks."""
    ranks = tuple(ranks)
    return named_ranks(ranks) if ranks else "the missing ranks"


def _group(evidence: HangEvidence, index: int) -> str:
    group = evidence.groups[index]
    return f"{group.name} [{name_some(group.members)}]"


def _hosts(evidence: HangEvidence, ranks: tuple[int, ...]) -> str:
    return ", ".join(sorted({evidence.ranks[rank].host for rank in ranks if rank in evidence.ranks} - {""}))


def _awaited(evidence: HangEvidence, graph: WaitGraph, ranks: tuple[int, ...]) -> str:
    """The operations in which others wait for ``ranks``: one of each rank, and the number of further ones.
    Collectives in which only ``ranks`` are missing come first."""
    first = dict[int, Wait]()
    each = {(wait.group, wait.op, wait.seq): wait for wait in graph.waits.values()}.values()
    awaited = set(ranks)

    def preference(wait: Wait) -> tuple[bool, bool, int, int]:
        return graph.blocked[wait.rank].is_transfer, not awaited.issuperset(wait.on), wait.group, wait.seq

    for wait in sorted(each, key=preference):
        for rank in awaited.intersection(wait.on):
            first.setdefault(rank, wait)
    listed = list(dict.fromkeys((wait.op, wait.seq, wait.group) for _, wait in sorted(first.items())))
    named = [f"{op} #{seq} of {_group(evidence, group)}" for op, seq, group in listed[:2]]
    return " and ".join(named) + (f" and {len(listed) - 2} more" if len(listed) > 2 else "")


def _others_wait(evidence: HangEvidence, graph: WaitGraph, ranks: tuple[int, ...]) -> str:
    awaited = _awaited(evidence, graph, ranks)
    return f"; others {evidence.tense('wait', 'waited')} in {awaited}" if awaited else ""


def _where(evidence: HangEvidence, ranks: tuple[int, ...]) -> str:
    """Stage and place of the first of ``ranks`` whose evidence has a stage or a stack. Empty if there is none."""
    for rank in ranks:
        of_rank = evidence.ranks.get(rank)
        if of_rank is None or not (of_rank.stage or of_rank.stack):
            continue
        frame = place_of(of_rank.stack)
        stage = "" if of_rank.stage == Stage.STEP.label else of_rank.stage
        if stage and frame:
            return f"; stopped in {stage} ({frame})"
        return f"; stopped in {of_rank.stage}" if not frame else f"; stopped at {frame}"
    return ""


def _death(evidence: HangEvidence, ranks: tuple[int, ...]) -> str:
    """``rank 5 died (SIGKILL) on host-2 in step 7, in data-load``: step and stage are those of the first rank."""
    known = [evidence.ranks[rank] for rank in ranks if rank in evidence.ranks]
    if all(of_rank.process is Process.ENDED for of_rank in known):
        manner = f"ended while others still {evidence.tense('wait', 'waited')}"
    else:
        signals, hosts = sorted({of_rank.ended_by for of_rank in known} - {""}), _hosts(evidence, ranks)
        manner = (f"died ({', '.join(signals)})" if signals else "died") + (f" on {hosts}" if hosts else "")
    step = stage = ""
    if known and known[0].step >= 0:
        step = f" in step {known[0].step}"
        stage = f", in {known[0].stage}" if known[0].stage not in ("", Stage.STEP.label) else ""
    return f"{named(ranks)} {manner}{step}{stage}"
