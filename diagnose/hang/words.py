"""The verdict in words: one line for the engineer on call, and the next step. Past tense once the job has ended."""

from enum import StrEnum

from diagnose.hang.deaths import first_to_fall
from diagnose.hang.evidence import HangEvidence, Process
from diagnose.hang.mismatch import Mismatch
from diagnose.hang.verdict import Wait
from diagnose.hang.waits import WaitGraph
from diagnose.ranges import fold_ranks, name_some
from telemetry.stages import Stage


class Cause(StrEnum):
    """What is wrong with the initiating ranks."""

    NEVER_ENTERED = "never entered"
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


NEXT_STEPS = {
    Cause.NEVER_ENTERED: "read the stack of {ranks}{host}: its Python code is blocked. Then restart without this host",
    Cause.DEVICE: "check the GPU of {ranks}{host} (Xid in dmesg, nvidia-smi -q) and its links. Drain the host",
    Cause.STOPPED: "resume {ranks}{host} with kill -CONT, or detach the debugger from it",
    Cause.DEAD: "read the end of the log of {ranks}{host} and dmesg there (OOM killer, Xid). Restart without the host",
    Cause.DIED_TOGETHER: "find what ended all of them: check dmesg there (OOM killer), the scheduler and the log "
    "of the launcher",
    Cause.FELL_OVER_MISMATCH: "compare the collective of {ranks} with those of the peers: a branch, a shape or a batch "
    "differs. Run again when all records have arrived",
    Cause.MISSING: "check whether the process of {ranks}{host} still exists, and take a dump of it",
    Cause.MISMATCH: "compare the code path of {ranks} with its peers: a branch, a shape or a batch differs",
    Cause.LEFT_OUT: "find the branch where {ranks} skips a collective that its peers issue",
    Cause.ALL_ENTERED: "check the links between the hosts of the group, and its NCCL log (NCCL_DEBUG=INFO)",
    Cause.CIRCLE: "compare the order in which these ranks issue their collectives. The order differs",
    Cause.NOTHING: "nothing",
}
AFTER_THE_END = {
    Cause.NEVER_ENTERED: "read the stack of {ranks}{host}: its Python code was blocked. Then restart without this host",
    Cause.STOPPED: "find what stopped {ranks}{host}: a SIGSTOP or a debugger",
    Cause.MISSING: "read the end of the log of {ranks}{host} and dmesg there (OOM killer, Xid)",
}
"""In place of those of ``NEXT_STEPS`` that need a process that lives."""


def headline(
    evidence: HangEvidence, graph: WaitGraph, ranks: tuple[int, ...], cause: Cause, mismatch: Mismatch | None
) -> str:
    """The verdict in one line."""
    who, is_are, them = _who(ranks), _be(evidence, ranks), "them" if len(ranks) > 1 else "it"
    where = _where(evidence, ranks)
    match cause:
        case Cause.NEVER_ENTERED:
            return f"{who} {is_are} behind: never entered {_awaited(evidence, graph, ranks)}{where}"
        case Cause.DEVICE:
            return f"{who} {is_are} stuck: entered {_own(evidence, graph, ranks)} and did not finish it, but others did"
        case Cause.STOPPED:
            return f"{who} {is_are} stopped (SIGSTOP or a debugger){_behind(evidence, graph, ranks)}{where}"
        case Cause.DEAD:
            return f"{who} {_manner(evidence, ranks)}{_last_seen(evidence, ranks)}{_behind(evidence, graph, ranks)}"
        case Cause.MISSING if ranks:
            awaited = _awaited(evidence, graph, ranks)
            return f"{who} {is_are} behind: no records of {them}, and all other members entered {awaited}"
        case Cause.LEFT_OUT:
            return f"{who} {is_are} out of step: skipped an operation that its peers issued{where}"
        case _:
            return _nobody(evidence, graph, cause, mismatch, who)


def _nobody(evidence: HangEvidence, graph: WaitGraph, cause: Cause, mismatch: Mismatch | None, who: str) -> str:
    if mismatch is not None and cause is Cause.MISMATCH:
        members = _group(evidence, mismatch.group)
        if not mismatch.odd:
            disagree = evidence.tense("disagree", "disagreed")
            return (
                f"members of {members} {disagree} on operation #{mismatch.seq}: {mismatch.others}; there is no majority"
            )
        return f"{who} issued {mismatch.theirs} as #{mismatch.seq} of {members}, its peers {mismatch.others}"
    if cause is Cause.ALL_ENTERED:
        (group, seq), ranks = next(iter(graph.stuck.items()))
        op = graph.blocked[ranks[0]].op
        entered = f"all of {_group(evidence, group)} entered {op} #{seq} and none finished it"
        return f"{entered}: the network or a device {_be(evidence, ())} stuck"
    if cause is Cause.DIED_TOGETHER:
        return f"{_who(first_to_fall(evidence))} died together: the first one is unknown"
    if cause is Cause.FELL_OVER_MISMATCH:
        first = first_to_fall(evidence)
        told = f"{_who(first)} {_manner(evidence, first)}{_last_seen(evidence, first)}"
        over = "after a collective mismatch: a peer sent something else"
        return f"{told}, {over}; the wrong rank is unknown"
    if cause is Cause.MISSING:
        late = sorted(graph.roots())
        wait = evidence.tense("wait", "waited")
        return f"{_who(tuple(late))} left no records, and others {wait}: too little evidence for a verdict"
    if cause is Cause.CIRCLE:
        ranks = tuple(sorted({rank for wait in graph.waits.values() for rank in wait.on}))
        wait = evidence.tense("wait", "waited")
        return f"{_who(ranks)} {wait} for each other (deadlock); the rank with the wrong order is unknown"
    return "nothing is stalled"


def next_step(evidence: HangEvidence, ranks: tuple[int, ...], cause: Cause) -> str:
    """What to do now."""
    if cause is Cause.FELL_OVER_MISMATCH:
        ranks = first_to_fall(evidence)
    hosts = sorted({evidence.ranks[rank].host for rank in ranks if rank in evidence.ranks} - {""})
    host = f" (host {', '.join(hosts)})" if hosts else ""
    known = {**NEXT_STEPS, **AFTER_THE_END} if evidence.has_ended else NEXT_STEPS
    return known[cause].format(ranks=_who(ranks), host=host)


def _be(evidence: HangEvidence, ranks: tuple[int, ...]) -> str:
    """``is``, of several ranks ``are``."""
    return evidence.tense("are", "were") if len(ranks) > 1 else evidence.tense("is", "was")


def _who(ranks: tuple[int, ...]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {fold_ranks(ranks)}" if ranks else "the missing ranks"


def _group(evidence: HangEvidence, index: int) -> str:
    group = evidence.groups[index]
    return f"{group.name} [{name_some(group.members)}]"


def _awaited(evidence: HangEvidence, graph: WaitGraph, ranks: tuple[int, ...]) -> str:
    """The operations in which others wait for ``ranks``: the first of each rank, and how many more."""
    wanted, first = set(ranks), dict[int, Wait]()
    each = {(wait.group, wait.op, wait.seq): wait for wait in graph.waits.values()}.values()
    for wait in sorted(each, key=lambda wait: (graph.blocked[wait.rank].is_transfer, wait.group, wait.seq)):
        for rank in wanted.intersection(wait.on):
            first.setdefault(rank, wait)
    listed = list(dict.fromkeys((wait.op, wait.seq, wait.group) for _, wait in sorted(first.items())))
    named = [f"{op} #{seq} of {_group(evidence, group)}" for op, seq, group in listed[:2]]
    return " and ".join(named) + (f" and {len(listed) - 2} more" if len(listed) > 2 else "")


def _behind(evidence: HangEvidence, graph: WaitGraph, ranks: tuple[int, ...]) -> str:
    awaited = _awaited(evidence, graph, ranks)
    return f"; others {evidence.tense('wait', 'waited')} in {awaited}" if awaited else ""


def _own(evidence: HangEvidence, graph: WaitGraph, ranks: tuple[int, ...]) -> str:
    ops = [graph.blocked[rank] for rank in ranks if rank in graph.blocked]
    return " and ".join(f"{op.op} #{op.seq} of {_group(evidence, op.group)}" for op in ops[:2])


def _where(evidence: HangEvidence, ranks: tuple[int, ...]) -> str:
    """Stage and innermost frame of the first of ``ranks`` that shows any."""
    for rank in ranks:
        one = evidence.ranks.get(rank)
        if one is None or not (one.stage or one.stack):
            continue
        frame = telling_frame(one.stack)
        stage = "" if one.stage == Stage.STEP.label else one.stage
        if stage and frame:
            return f"; stopped in {stage} ({frame})"
        return f"; stopped in {one.stage}" if not frame else f"; stopped at {frame}"
    return ""


def _last_seen(evidence: HangEvidence, ranks: tuple[int, ...]) -> str:
    """Step and stage in which the first of ``ranks`` was."""
    one = next((evidence.ranks[rank] for rank in ranks if rank in evidence.ranks), None)
    if one is None or one.step < 0:
        return ""
    inner = f", in {one.stage}" if one.stage and one.stage != Stage.STEP.label else ""
    return f" in step {one.step}{inner}"


OWN_FRAMES = ("threading.py", "selectors.py", "socket.py", "queue.py", "distributed_c10d.py", "c10d_logger.py")


def telling_frame(stack: tuple[str, ...]) -> str:
    """The innermost frame that is not merely the standard library's or torch's way of waiting; empty for no stack."""
    own = [frame for frame in stack if not any(name in frame for name in OWN_FRAMES)]
    return (own or list(stack) or [""])[0]


def _manner(evidence: HangEvidence, ranks: tuple[int, ...]) -> str:
    ended = all(evidence.ranks[rank].process is Process.ENDED for rank in ranks if rank in evidence.ranks)
    if ended:
        return f"ended while others still {evidence.tense('wait', 'waited')}"
    hosts = sorted({evidence.ranks[rank].host for rank in ranks if rank in evidence.ranks} - {""})
    manners = sorted({evidence.ranks[rank].ended_by for rank in ranks if rank in evidence.ranks} - {""})
    died = f"died ({', '.join(manners)})" if manners else "died"
    return f"{died} on {', '.join(hosts)}" if hosts else died
