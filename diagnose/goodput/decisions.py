"""Names of the driver's decisions, and what they mean for the ledger. ``trainer/drive`` makes them.

This package must not import the trainer. ``tests/diagnose/goodput/test_decision_names.py`` compares both.
"""

from collections.abc import Iterable, Sequence

from diagnose.findings import Kind
from diagnose.goodput.records import DriverDecision

START, CHECK, WAIT, PAUSE, RESUME, END = "start", "check", "wait", "pause", "resume", "end"
CHECK_PAIRS = "check-pairs"
TAKE_OVER, GIVE_UP, DONE, PREEMPTED, STALL = "take-over", "give-up", "done", "preempted", "stall"
RANK_FAILED, RANK_STOPPED = "rank-failed", "rank-stopped"
SAVES_FIRST = frozenset({Kind.COMPUTE_STRAGGLER, Kind.NIC_FLAP, Kind.SLOW_LINK, Kind.GPU_THROTTLED, PREEMPTED})
"""Faults of a job that still trains: it saves a checkpoint before it stops."""
NODE_LOST, EXECUTOR_LOST, NOT_STARTED, NOT_FINITE = "node-lost", "executor-lost", "not-started", "not-finite"
NO_CHECKPOINT = "no-usable-checkpoint"
FAULTS = (
    frozenset(
        {RANK_FAILED, RANK_STOPPED, NODE_LOST, EXECUTOR_LOST, NOT_STARTED, NO_CHECKPOINT, NOT_FINITE, STALL, *Kind}
    )
    - SAVES_FIRST
)
"""Faults after which the job makes no progress."""
HANGS = frozenset({STALL, RANK_STOPPED, Kind.HUNG_COLLECTIVE, Kind.COLLECTIVE_MISMATCH})
"""Faults without progress since the newest completed step: the time since then is lost, not the usual step time."""
OPERATOR = frozenset({"drain", "replace", PAUSE, END})
"""Decisions with which an operator stops an attempt, which saves a checkpoint first. They are not incidents."""
RESULTS = frozenset({"admit", "suspect", "block", START, CHECK, WAIT, GIVE_UP, DONE})
"""The first of these after ``check`` or ``check-pairs`` ends the check."""
NEXT_MOVES = frozenset({START, CHECK, WAIT, RESUME, GIVE_UP, DONE, TAKE_OVER})
"""The first of these after the newest step shows that an attempt is over."""


def is_about_job(decision: DriverDecision, *names: str) -> bool:
    """Whether a decision is one of ``names`` and about the whole job. ``resume`` can also be about a single node."""
    return decision.name in names and not decision.node


def first_after(
    decisions: Iterable[DriverDecision], at_ns: int, names: Iterable[str], *, until_ns: int | None = None
) -> DriverDecision | None:
    """The first decision of ``names`` that is later than ``at_ns``, but not later than ``until_ns``. None otherwise."""
    wanted = frozenset(names)
    for decision in decisions:
        if decision.name in wanted and decision.at_ns > at_ns:
            return decision if until_ns is None or decision.at_ns <= until_ns else None
    return None


def spans_between(
    decisions: Sequence[DriverDecision], name: str, until: Iterable[str], end_ns: int
) -> list[tuple[int, int]]:
    """Begin and end of time ranges: from each decision ``name`` to the next one of ``until``, or to ``end_ns``."""
    spans = []
    for index, decision in enumerate(decisions):
        if decision.name == name:
            found = first_after(decisions[index + 1 :], decision.at_ns, until)
            spans.append((decision.at_ns, found.at_ns if found else end_ns))
    return spans
