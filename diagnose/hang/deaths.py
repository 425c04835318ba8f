"""The rank that died first, by a kill or its own error. The ranks that failed because of it come later."""

from collections.abc import Collection
from dataclasses import replace

from diagnose.hang.evidence import HangEvidence, LogLine, Process, RankEvidence

STILL_NS = 5_000_000_000
"""When nothing moved for so long before the first death, the job hung first and was ended over it."""
TOGETHER_NS = 1_000_000
TOGETHER_ACROSS_HOSTS_NS = 1_000_000_000
LAST_WORDS_NS = 60_000_000_000
UNSEEN = "all processes are gone and no stall was observed: these are their last states"
"""A note on evidence that may be that of a healthy job, ended in an instant."""
INTERRUPTIONS = ("KeyboardInterrupt", "SystemExit")
CONSEQUENCES = ("gloo-connection", "nccl-error", "nccl-warning", "watchdog-timeout")
"""Faults that a lost peer causes."""
MISMATCH = "collective-mismatch"
"""Whoever goes down over it got what it had not asked for: a victim as often as not."""
BESIDE_MISMATCH = (MISMATCH, *CONSEQUENCES, "terminated", "segfault", "python-traceback", "python-exception")
"""What else such a rank says; of an abort Python speaks as of a segmentation fault."""
OVER_MISMATCH = ("", "SIGABRT")
"""How it ends, unless in good order."""
ON_PURPOSE = ("SIGTERM", "SIGINT", "SIGHUP")
"""How launchers, schedulers and people end a rank."""


def as_it_stood(evidence: HangEvidence) -> HangEvidence:
    """A job that hung is ended in the end, by a watchdog or by hand: then who died says nothing, and ranks count as
    they were when last seen alive. So too when all are gone and nobody saw in which order."""
    dead = {rank: one for rank, one in evidence.ranks.items() if one.process is Process.DEAD}
    if not dead:
        return evidence
    stamps = [one.died_ns for one in dead.values() if one.died_ns]
    first_ns = min(stamps, default=0)
    unseen = not stamps and len(dead) == len(evidence.ranks)
    if not unseen and not (first_ns and evidence.moved_ns and first_ns - evidence.moved_ns > STILL_NS):
        return evidence
    stood = {rank: replace(one, process=one.living) for rank, one in dead.items()}
    notes = (*evidence.notes, UNSEEN) if unseen else evidence.notes
    return replace(evidence, ranks={**evidence.ranks, **stood}, notes=notes)


def first_to_fall(evidence: HangEvidence) -> tuple[int, ...]:
    """The first, or those that cannot be told from it; none where no rank fell, or all were ended on purpose."""
    fell = {rank: one for rank, one in evidence.ranks.items() if _died(one) or _failed(one)}
    own = {rank: one for rank, one in fell.items() if _over_mismatch(one) or not _shows(one, CONSEQUENCES)} or fell
    if not own:
        return ()
    stamped = {rank: one for rank, one in own.items() if _fell_ns(one)} or own
    first = min(stamped.values(), key=_fell_ns)
    return tuple(sorted(rank for rank, one in stamped.items() if _together(first, one)))


def fell_over_mismatch(evidence: HangEvidence, ranks: Collection[int]) -> bool:
    """Whether ``ranks``, all of them, went down as a peer had sent something else than they had asked for."""
    return bool(ranks) and all(_over_mismatch(evidence.ranks[rank]) for rank in ranks)


def _over_mismatch(one: RankEvidence) -> bool:
    """By its last words, and nothing else that would have ended it."""
    words = [line.fault for line in one.log if line.fault and _is_late(line, one.died_ns)]
    by_itself = one.process is Process.ENDED or one.ended_by in OVER_MISMATCH
    return by_itself and MISMATCH in words and all(fault in BESIDE_MISMATCH for fault in words)


def _together(first: RankEvidence, one: RankEvidence) -> bool:
    """Clocks of two hosts agree less well than one with itself."""
    apart_ns = _fell_ns(one) - _fell_ns(first)
    return apart_ns <= (TOGETHER_NS if one.host == first.host else TOGETHER_ACROSS_HOSTS_NS)


def _died(one: RankEvidence) -> bool:
    return one.process is Process.DEAD and one.ended_by not in ON_PURPOSE


def _failed(one: RankEvidence) -> bool:
    """Python unwinds in good order from an error; its log tells."""
    return one.process is Process.ENDED and any(_is_own_fault(line, one.died_ns) for line in one.log)


def _is_own_fault(line: LogLine, died_ns: int) -> bool:
    """A fault it went down with: not one that it survived long before, and not somebody's Ctrl-C."""
    told = line.fault and line.fault != "python-traceback" and not line.text.startswith(INTERRUPTIONS)
    return bool(told) and _is_late(line, died_ns)


def _is_late(line: LogLine, died_ns: int) -> bool:
    """Whether it is of the last that a rank said."""
    return not died_ns or died_ns - line.at_ns < LAST_WORDS_NS


def _shows(one: RankEvidence, faults: tuple[str, ...]) -> bool:
    return any(line.fault in faults for line in one.log)


def _fell_ns(one: RankEvidence) -> int:
    return one.died_ns or min((line.at_ns for line in one.log if line.fault), default=0)
