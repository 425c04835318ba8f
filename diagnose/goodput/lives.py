"""The life of each attempt on the timeline of its run.

begin          first step             newest step    progress      fault detected
v              v                      v   ends       v stops       v
|  start-up    |warm-up| steps ...    |  lost part   |  detecting  |
  restarting             useful ...      repeated       detecting

begin          first step             newest step        checkpoint complete
|  start-up    |warm-up| steps ...    |  saving          |            planned stop, or the job is done
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from diagnose.goodput.decisions import START
from diagnose.goodput.records import CODES, AttemptFacts, RunHistory, StepTimes, TimeClass
from diagnose.goodput.share import warm_up_ns
from diagnose.goodput.stops import Stop, StopKind, Unstopped, stop_of
from diagnose.goodput.timeline import Ints, Piece


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """An attempt on the timeline of its run. ``first_ns`` and ``last_ns``: begin and end of its steps."""

    attempt: int
    begin_ns: int
    first_ns: int | None
    last_ns: int | None
    stop: Stop
    numbers: Ints
    starts_ns: Ints
    ends_ns: Ints
    """``starts_ns`` and ``ends_ns``: begin and end of each step, without overlaps."""
    warm_ns: int | None
    """End of the warm-up in its first step."""
    snapshots: StepTimes
    is_estimated: bool
    """Whether the time of a fault follows from the usual step time alone."""

    def pieces(self) -> Iterator[Piece]:
        """The time of the attempt in pieces, without its steps. The steps are painted on top of these pieces."""
        stop, progress_ns = self.stop, self.begin_ns
        if self.first_ns is not None and self.last_ns is not None:
            yield Piece(self.begin_ns, self.first_ns, CODES[TimeClass.RESTARTING])
            yield Piece(self.first_ns, self.last_ns, CODES[TimeClass.OUTSIDE_STEPS])
            progress_ns = self.last_ns
        before, after = _TAILS[stop.kind]
        if self.last_ns is None:
            before = TimeClass.RESTARTING
            after = after if stop.kind is StopKind.FAULT else before
        stopped_ns = max(progress_ns, stop.stopped_ns)
        yield Piece(progress_ns, stopped_ns, CODES[before])
        yield Piece(stopped_ns, stop.over_ns, CODES[after])


_TAILS = {
    StopKind.FAULT: (TimeClass.REPEATED, TimeClass.DETECTING),
    StopKind.UNKNOWN: (TimeClass.OUTSIDE_STEPS, TimeClass.OUTSIDE_STEPS),
    StopKind.SAVED: (TimeClass.CHECKPOINTING, TimeClass.OUTSIDE_STEPS),
    StopKind.FINISHED: (TimeClass.CHECKPOINTING, TimeClass.OUTSIDE_STEPS),
    StopKind.RUNNING: (TimeClass.OUTSIDE_STEPS, TimeClass.OUTSIDE_STEPS),
}
"""Classes after the newest step: until progress stopped, and until the attempt is over."""


def lives_of(history: RunHistory, end_ns: int) -> list[Life]:
    """All attempts in order. ``end_ns``: the end of the run's wall time."""
    attempts = _with_unreported(history)
    starts = {decision.attempt: decision.at_ns for decision in reversed(history.decisions) if decision.name == START}
    begins = [starts.get(facts.attempt, facts.started_ns) for facts in attempts]
    lives = []
    for index, facts in enumerate(attempts):
        next_ns = begins[index + 1] if index + 1 < len(attempts) else None
        starts_ns, ends_ns = _laid_out(facts.steps, end_ns if next_ns is None else next_ns)
        life = Unstopped(
            facts=facts,
            begin_ns=min([begins[index], *starts_ns[:1].tolist()]),
            last_ns=int(ends_ns[-1]) if len(ends_ns) else None,
            next_ns=next_ns,
            end_ns=end_ns,
        )
        decisions = [
            decision for decision in history.decisions if life.begin_ns <= decision.at_ns <= (next_ns or end_ns)
        ]
        stop = stop_of(life, decisions, is_driven=bool(history.decisions))
        lives.append(
            Life(
                attempt=facts.attempt,
                begin_ns=life.begin_ns,
                first_ns=int(starts_ns[0]) if len(starts_ns) else None,
                last_ns=life.last_ns,
                stop=stop,
                numbers=facts.steps.number,
                starts_ns=starts_ns,
                ends_ns=ends_ns,
                warm_ns=_warm_ns(facts.steps, starts_ns, ends_ns),
                snapshots=facts.snapshots,
                is_estimated=life.last_ns is not None and stop.stopped_ns == life.usual_end_ns,
            )
        )
    return lives


def _with_unreported(history: RunHistory) -> list[AttemptFacts]:
    """All attempts in order, also those that the driver started and whose ranks reported nothing."""
    known = {facts.attempt: facts for facts in history.attempts}
    for decision in history.decisions:
        if decision.name == START and decision.attempt not in known:
            at_ns = decision.at_ns
            known[decision.attempt] = AttemptFacts(attempt=decision.attempt, started_ns=at_ns, heard_ns=at_ns)
    return [known[attempt] for attempt in sorted(known)]


def _warm_ns(steps: StepTimes, starts_ns: Ints, ends_ns: Ints) -> int | None:
    """The end of the warm-up on the timeline, on which steps begin at ``starts_ns`` and end at ``ends_ns``."""
    if not len(steps):
        return None
    lasts_ns = warm_up_ns(int(steps.duration_ns[0]), int(steps.duration_ns.sum()), len(steps))
    return min(int(starts_ns[0]) + round(lasts_ns), int(ends_ns[0]))


def _laid_out(steps: StepTimes, until_ns: int) -> tuple[Ints, Ints]:
    """Begin and end of each step, one after the other.

    The duration is a mean over ranks and the start that of the first rank. So a step can seem to begin before the one
    before it has ended. It then begins at that end, and no time is lost, unless it would end after the last step:

        start    |1        |2       |3           end_i = max(start_i, end_(i-1)) + duration_i
        laid out |1111111111|2222222|33333333|
    """
    if not len(steps):
        return steps.start_ns, steps.start_ns
    until = np.cumsum(steps.duration_ns)
    ends_ns = until + np.maximum.accumulate(steps.start_ns - (until - steps.duration_ns))
    last_ns = min(until_ns, int((steps.start_ns + steps.duration_ns).max()))
    return np.minimum(ends_ns - steps.duration_ns, last_ns), np.minimum(ends_ns, last_ns)
