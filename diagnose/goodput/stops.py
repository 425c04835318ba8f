"""When and why each attempt stopped: from the driver's decisions, otherwise from heartbeats and evidence."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from diagnose.goodput.decisions import (
    DONE,
    FAULTS,
    HANGS,
    NEXT_MOVES,
    OPERATOR,
    PREEMPTED,
    RANK_FAILED,
    SAVES_FIRST,
    STALL,
    first_after,
)
from diagnose.goodput.records import AttemptFacts, DriverDecision, Ending

UNKNOWN_CAUSE = "unknown"
USUAL_STEPS = 50
"""The usual step time is the median of this number of newest steps."""
HANG_STEPS, HANG_NS = 3, 10_000_000_000
"""A failed attempt with evidence of a stall hung if its first error came this many usual steps, and this long, after
its newest step. Evidence alone does not show a hang, because agents take evidence of crashed ranks, too."""


class StopKind(StrEnum):
    """How an attempt stopped."""

    FAULT = "fault"
    """Because of a fault and without a save: the open step is lost."""
    SAVED = "saved"
    """With a save, because of an operator or of a fault that leaves time for it."""
    FINISHED = "finished"
    """All ranks ended normally."""
    RUNNING = "running"
    """It has not stopped."""
    UNKNOWN = "unknown"
    """Another attempt followed, and nothing stored shows why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """The stop of an attempt."""

    kind: StopKind
    stopped_ns: int
    """When progress stopped."""
    over_ns: int
    """When the attempt's own time ends: a fault was detected, a save is complete, or the newest data while it runs."""
    cause: str = ""
    """Name of the fault. Empty if the stop is not an incident."""
    reason: str = ""
    node: str = ""
    detected_ns: int | None = None
    """When the fault was detected. None: not yet, or unknown."""

    @property
    def began_ns(self) -> int:
        """When the fault began, as far as known."""
        return self.stopped_ns if self.detected_ns is None else min(self.stopped_ns, self.detected_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unstopped:
    """An attempt whose stop is not known yet. ``next_ns``: the begin of the next one."""

    facts: AttemptFacts
    begin_ns: int
    last_ns: int | None
    next_ns: int | None
    end_ns: int

    @property
    def progress_ns(self) -> int:
        """When it last made progress."""
        return self.begin_ns if self.last_ns is None else self.last_ns

    @property
    def heard_ns(self) -> int:
        """Its newest data, between its newest step and the next attempt."""
        return max(self.progress_ns, min(self.facts.heard_ns, self.end_ns if self.next_ns is None else self.next_ns))

    @property
    def is_over(self) -> bool:
        return self.next_ns is not None or self.facts.ending in (Ending.WELL, Ending.FAILED)

    def saved_ns(self, latest_ns: int) -> int:
        """When the checkpoint after the newest step was complete; otherwise when the ranks ended."""
        saved_ns = self.facts.saved_ns if self.facts.saved_ns > self.progress_ns else self.heard_ns
        return max(self.progress_ns, min(saved_ns, latest_ns))

    def failed_ns(self, latest_ns: int, *, is_hang: bool) -> int:
        """When progress stopped: after the newest step in a hang, otherwise inside the step after it.

        That open step lasted at most the usual step time, and at most until an error interrupted it.
        """
        if is_hang:
            return min(self.progress_ns, latest_ns)
        if self.last_ns is None:
            return min(self.heard_ns, latest_ns) if self.facts.num_ranks else latest_ns
        known = [self.facts.interrupted_ns] if self.facts.interrupted_ns > self.last_ns else []
        return min(latest_ns, self.usual_end_ns, *known)

    @property
    def has_hung(self) -> bool:
        """Whether agents found a stall that was longer than ``HANG_STEPS`` and ``HANG_NS`` when the attempt failed."""
        still_ns = (self.facts.interrupted_ns or self.heard_ns) - self.progress_ns
        is_long = still_ns > max(HANG_STEPS * (self.usual_end_ns - self.progress_ns), HANG_NS)
        return self.facts.has_stalled and (is_long or self.facts.ending is not Ending.FAILED)

    @property
    def usual_end_ns(self) -> int:
        """When the step after the newest one would have ended."""
        usual_ns = np.median(self.facts.steps.duration_ns[-USUAL_STEPS:]) if self.last_ns is not None else 0
        return self.progress_ns + int(usual_ns)


def stop_of(life: Unstopped, decisions: Sequence[DriverDecision], *, is_driven: bool) -> Stop:
    """When and why an attempt stopped. ``decisions``: those between its begin and the begin of the next attempt."""
    return _driven_stop(life, decisions) if is_driven else _stop(life)


def _driven_stop(life: Unstopped, decisions: Sequence[DriverDecision]) -> Stop:
    for decision in decisions:
        if decision.name in FAULTS:
            is_hang = decision.name in HANGS
            return _fault(life, decision.at_ns, decision.name, decision.reason, decision.node, is_hang=is_hang)
    if (done := first_after(decisions, life.begin_ns, [DONE])) is not None:
        return _finished(life, max(done.at_ns, life.progress_ns))
    if not life.is_over:
        return _stop(life, is_driven=True)
    next_move = first_after(decisions, life.progress_ns, NEXT_MOVES)
    latest_ns = next_move.at_ns if next_move else life.heard_ns
    for decision in reversed(decisions):
        if decision.name in SAVES_FIRST or decision.name in OPERATOR:
            return _saved(life, decision, latest_ns)
    if life.next_ns is None:
        return _stop(life, is_driven=True)
    return _unknown(life, life.saved_ns(latest_ns), "no decision explains the stop")


def _stop(life: Unstopped, *, is_driven: bool = False) -> Stop:
    """The stop of an attempt from heartbeats and evidence, if no decision of a driver shows it.

    ``is_driven``: a driver may still decide something.
    """
    facts, is_last = life.facts, life.next_ns is None
    is_open = is_last and (is_driven or not facts.has_ended)
    over_ns = life.end_ns if is_open else life.heard_ns
    if life.has_hung:
        reason = "no step completed after the evidence of a stall"
        return _fault(life, over_ns, STALL, reason, is_hang=True, is_detected=not is_open)
    match facts.ending:
        case Ending.FAILED:
            reason = f"{facts.num_failed} of {facts.num_ranks} ranks ended with an error or disappeared"
            return _fault(life, over_ns, RANK_FAILED, reason, is_detected=not is_open)
        case Ending.WELL:
            return _finished(life, life.heard_ns)
        case Ending.RUNNING if is_last:
            return Stop(kind=StopKind.RUNNING, stopped_ns=life.progress_ns, over_ns=life.end_ns)
        case Ending.UNKNOWN if is_last:
            return _finished(life, life.end_ns)
    return _unknown(life, life.heard_ns, "no heartbeat shows how its ranks ended")


def _fault(
    life: Unstopped,
    at_ns: int,
    cause: str,
    reason: str,
    node: str = "",
    *,
    is_hang: bool = False,
    is_detected: bool = True,
) -> Stop:
    is_hang = is_hang or life.has_hung
    return Stop(
        kind=StopKind.FAULT,
        stopped_ns=life.failed_ns(at_ns, is_hang=is_hang),
        over_ns=at_ns,
        cause=cause,
        reason=reason,
        node=node,
        detected_ns=at_ns if is_detected else None,
    )


def _saved(life: Unstopped, decision: DriverDecision, latest_ns: int) -> Stop:
    """A stop with a save, caused by ``decision``.

    ``latest_ns``: time of the driver's next move. For ``preempted``, the decision is used instead: it is made when all
    ranks have ended.
    """
    saved_ns = life.saved_ns(decision.at_ns if decision.name == PREEMPTED else latest_ns)
    return Stop(
        kind=StopKind.SAVED,
        stopped_ns=saved_ns,
        over_ns=saved_ns,
        cause=decision.name if decision.name in SAVES_FIRST else "",
        reason=decision.reason,
        node=decision.node,
        detected_ns=decision.at_ns,
    )


def _unknown(life: Unstopped, over_ns: int, reason: str) -> Stop:
    return Stop(kind=StopKind.UNKNOWN, stopped_ns=life.progress_ns, over_ns=over_ns, cause=UNKNOWN_CAUSE, reason=reason)


def _finished(life: Unstopped, over_ns: int) -> Stop:
    saved_ns = life.facts.saved_ns if life.facts.saved_ns > life.progress_ns else life.progress_ns
    return Stop(kind=StopKind.FINISHED, stopped_ns=min(saved_ns, over_ns), over_ns=over_ns)
