"""The ledger of a run: a pure function of what is stored about its attempts.

    1. all of it       restarting (with a driver) or idle (without)
    2. driver          waiting-for-nodes, checking, idle while paused
    3. attempts        start-up, lost part of the open step, detecting, saving      lives.py
    4. steps           useful or repeated
    5. warm-ups        restarting
    6. snapshots       checkpointing

Each layer replaces the layers with lower numbers. So the classes add up to the wall time.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from diagnose.goodput.decisions import (
    CHECK,
    CHECK_PAIRS,
    DONE,
    END,
    GIVE_UP,
    PAUSE,
    RESULTS,
    RESUME,
    START,
    TAKE_OVER,
    WAIT,
    is_about_job,
    spans_between,
)
from diagnose.goodput.lives import Life, lives_of
from diagnose.goodput.records import (
    CLASSES,
    CODES,
    NO_TIMES,
    OF_INCIDENTS,
    Ending,
    Incident,
    Ledger,
    RunHistory,
    TimeClass,
)
from diagnose.goodput.share import CompletedSteps, wall_range
from diagnose.goodput.stops import UNKNOWN_CAUSE, StopKind
from diagnose.goodput.timeline import Ints, Piece, Timeline


def make_ledger(history: RunHistory) -> Ledger:
    """How a run used its wall time. ``history`` has at least one attempt."""
    begin_ns, end_ns = wall_range(
        min(facts.started_ns for facts in history.attempts),
        max(facts.heard_ns for facts in history.attempts),
        history.host_wall_ns,
        [(decision.at_ns, decision.name) for decision in history.decisions],
    )
    lives = lives_of(history, end_ns)
    timeline = Timeline.plain(begin_ns, end_ns, CODES[TimeClass.RESTARTING if history.decisions else TimeClass.IDLE])
    for layer in _layers_of_driver(history, lives, end_ns):
        timeline = timeline.painted(layer)
    timeline = timeline.painted(piece for life in lives for piece in life.pieces())
    timeline = timeline.painted_all(*_steps(lives)).painted(_warm_ups(lives)).painted_all(*_snapshots(lives))
    totals = timeline.totals_ns(len(CLASSES))
    return Ledger(
        run_id=history.run_id,
        attempts=tuple(life.attempt for life in lives),
        begins_ns=tuple(life.begin_ns for life in lives),
        num_steps=sum(len(life.numbers) for life in lives),
        timeline=timeline,
        classes_ns=dict(zip(CLASSES, totals, strict=True)),
        incidents=tuple(_incidents(lives, timeline)),
        unknown=tuple(_unknown(history, lives)),
    )


def _layers_of_driver(history: RunHistory, lives: Sequence[Life], end_ns: int) -> Iterator[list[Piece]]:
    decisions = history.decisions
    until = (CHECK, START, GIVE_UP, DONE, PAUSE, END)
    yield _pieces(spans_between(decisions, WAIT, until, end_ns), TimeClass.WAITING)
    for name in (CHECK, CHECK_PAIRS):
        yield _pieces(spans_between(decisions, name, RESULTS, end_ns), TimeClass.CHECKING)
    yield _pieces(_pauses(history, lives, end_ns), TimeClass.IDLE)


def _pieces(spans: Sequence[tuple[int, int]], time_class: TimeClass) -> list[Piece]:
    return [Piece(begin_ns, end_ns, CODES[time_class]) for begin_ns, end_ns in spans]


def _pauses(history: RunHistory, lives: Sequence[Life], end_ns: int) -> list[tuple[int, int]]:
    """Time ranges from a pause or an end to the resume. If an attempt runs, the range begins when its save is done."""
    pauses, since_ns = [], None
    for decision in history.decisions:
        if decision.name in (PAUSE, END, GIVE_UP, DONE):
            since_ns = decision.at_ns if since_ns is None else since_ns
        elif since_ns is not None and (is_about_job(decision, RESUME, TAKE_OVER) or decision.name == START):
            pauses.append((_when_stopped(since_ns, lives), decision.at_ns))
            since_ns = None
    return pauses if since_ns is None else [*pauses, (_when_stopped(since_ns, lives), end_ns)]


def _when_stopped(asked_ns: int, lives: Sequence[Life]) -> int:
    """``asked_ns``, or the end of the attempt that ran then if that is later."""
    begun = [life for life in lives if life.begin_ns <= asked_ns]
    return max(asked_ns, begun[-1].stop.over_ns) if begun else asked_ns


def _steps(lives: Sequence[Life]) -> tuple[Ints, Ints, Ints]:
    completed, codes = CompletedSteps(), []
    for life in lives:
        is_repeated = completed.are_in(life.numbers)
        codes.append(np.where(is_repeated, CODES[TimeClass.REPEATED], CODES[TimeClass.USEFUL]))
        if len(life.numbers):
            completed.add(int(life.numbers[0]), int(life.numbers[-1]))
    return (
        np.concatenate([life.starts_ns for life in lives]),
        np.concatenate([life.ends_ns for life in lives]),
        np.concatenate(codes).astype(np.int64),
    )


def _warm_ups(lives: Sequence[Life]) -> Iterator[Piece]:
    for life in lives:
        if life.first_ns is not None and life.warm_ns is not None:
            yield Piece(life.first_ns, life.warm_ns, CODES[TimeClass.RESTARTING])


def _snapshots(lives: Sequence[Life]) -> tuple[Ints, Ints, Ints]:
    """Begin, end and class of the snapshots of each step, in order of time, without overlaps. Durations are the mean
    over the ranks, like step times."""
    starts_ns = np.concatenate([NO_TIMES, *(life.snapshots.start_ns for life in lives)])
    ends_ns = starts_ns + np.concatenate([NO_TIMES, *(life.snapshots.duration_ns for life in lives)])
    order = np.argsort(starts_ns, kind="stable")
    starts_ns, ends_ns = starts_ns[order], ends_ns[order]
    ends_ns[:-1] = np.minimum(ends_ns[:-1], starts_ns[1:])
    return starts_ns, ends_ns, np.full(len(starts_ns), CODES[TimeClass.CHECKPOINTING], np.int64)


def _incidents(lives: Sequence[Life], timeline: Timeline) -> Iterator[Incident]:
    faults = [index for index, life in enumerate(lives) if life.stop.cause]
    begins = [lives[index].stop.began_ns for index in faults]
    for index, until_ns in zip(faults, [*begins, timeline.end_ns][1:], strict=True):
        life = lives[index]
        after = next((later for later in lives[index + 1 :] if later.first_ns is not None), None)
        resumed_ns = after.first_ns if after else None
        warm_ns = after.warm_ns if after else None
        last_ns = min(until_ns, timeline.end_ns if warm_ns is None else warm_ns)
        stop = life.stop
        cost_ns = _time_in(timeline, OF_INCIDENTS, stop.began_ns, last_ns)
        if life.last_ns is not None:
            cost_ns += _time_in(timeline, (TimeClass.REPEATED,), life.last_ns, max(life.last_ns, stop.stopped_ns))
            if after is not None and after.first_ns is not None and after.last_ns is not None:
                cost_ns += _time_in(timeline, (TimeClass.REPEATED,), after.first_ns, after.last_ns)
        yield Incident(
            attempt=life.attempt,
            cause=stop.cause,
            reason=stop.reason,
            nodes=(stop.node,) if stop.node else (),
            began_ns=stop.began_ns,
            detected_ns=stop.detected_ns,
            resumed_ns=resumed_ns,
            cost_ns=cost_ns,
        )


def _time_in(timeline: Timeline, classes: Sequence[TimeClass], first_ns: int, last_ns: int) -> int:
    totals = timeline.totals_ns(len(CLASSES), first_ns, last_ns)
    return sum(totals[CODES[time_class]] for time_class in classes)


def _unknown(history: RunHistory, lives: Sequence[Life]) -> Iterator[str]:
    endings = {facts.attempt: facts.ending for facts in history.attempts}
    if not history.decisions and len(lives) > 1:
        yield "no driver: time between attempts counts as idle, and a fault counts as detected when the last rank ended"
    if all(ending is Ending.UNKNOWN for ending in endings.values()):
        yield "no agent sent heartbeats: it is not known when and how ranks ended"
    for life in lives:
        where = f"attempt {life.attempt}"
        if life.attempt not in endings:
            yield f"{where}: no rank reported"
        elif life.first_ns is None:
            yield f"{where}: no step is stored, so its time until its end was detected counts as restarting"
        if life.stop.cause == UNKNOWN_CAUSE:
            yield f"{where}: {life.stop.reason}"
        elif life.stop.kind is StopKind.FAULT and life.is_estimated:
            yield f"{where}: no mark shows when the fault began; one usual step time after the newest step is assumed"
