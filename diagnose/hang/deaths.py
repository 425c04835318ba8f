"""Which rank fell first: killed, or failed with an error of its own. Those that fell over it come after."""

from dataclasses import replace

from diagnose.hang.evidence import HangEvidence, Process, RankEvidence

STILL_NS = 5_000_000_000
"""When nothing moved for so long before the first death, the job hung first and was ended over it."""
TOGETHER_NS = 1_000_000
CONSEQUENCES = ("gloo-connection", "nccl-error", "nccl-warning", "watchdog-timeout")
"""Faults that a lost peer causes."""
ON_PURPOSE = ("SIGTERM", "SIGINT", "SIGHUP")
"""How launchers, schedulers and people end a rank."""


def as_it_stood(evidence: HangEvidence) -> HangEvidence:
    """A job that hung is ended in the end, by a watchdog or by hand: then who died says nothing, and ranks count as
    they were when last seen alive. So too when all are gone and nobody saw in which order."""
    dead = {rank: one for rank, one in evidence.ranks.items() if one.process is Process.DEAD}
    if not dead:
        return evidence
    first_ns = min(one.died_ns for one in dead.values())
    unseen = not any(one.died_ns for one in dead.values()) and len(dead) == len(evidence.ranks)
    if not unseen and not (first_ns and evidence.moved_ns and first_ns - evidence.moved_ns > STILL_NS):
        return evidence
    stood = {rank: replace(one, process=one.living) for rank, one in dead.items()}
    return replace(evidence, ranks={**evidence.ranks, **stood})


def first_to_fall(evidence: HangEvidence) -> tuple[int, ...]:
    """The first, or those within a millisecond of it; none where no rank fell, or all were ended on purpose."""
    fell = {rank: one for rank, one in evidence.ranks.items() if _died(one) or _failed(one)}
    own = {rank: one for rank, one in fell.items() if not _shows(one, CONSEQUENCES)} or fell
    if not own:
        return ()
    first_ns = min(_fell_ns(one) for one in own.values())
    return tuple(sorted(rank for rank, one in own.items() if _fell_ns(one) - first_ns <= TOGETHER_NS))


def _died(one: RankEvidence) -> bool:
    return one.process is Process.DEAD and one.ended_by not in ON_PURPOSE


def _failed(one: RankEvidence) -> bool:
    """Python unwinds in good order from an error; its log tells."""
    return one.process is Process.ENDED and any(line.fault for line in one.log)


def _shows(one: RankEvidence, faults: tuple[str, ...]) -> bool:
    return any(line.fault in faults for line in one.log)


def _fell_ns(one: RankEvidence) -> int:
    return one.died_ns or min((line.at_ns for line in one.log if line.fault), default=0)
