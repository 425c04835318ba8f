"""When each operation would begin and end if nobody were slow: the replay with ideal times, as a timeline.

    as it was   pp0   |== F0 ==|== F1 ==|          |=== B0 ===|   ...
    ideal       pp0   |= F0 =|= F1 =|     |== B0 ==|  ...              |<- lost ->|

All replicas and all steps are alike then, so there is one such timeline for each pipeline rank.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from diagnose.model.operations import Int64s
from diagnose.model.view import RunView
from diagnose.whatif.analysis import Replayed
from diagnose.whatif.conclude import MAX_REPLAY_ERROR, missed, replay_of
from diagnose.whatif.replay import Lane, replay

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class IdealOperations:
    """Operations of every pipeline rank, columns of one length. Nanoseconds since the step's first operation begins."""

    pp: Int64s
    stage: Int64s
    occurrence: Int64s
    """The how-many-th operation of its stage on its rank in the step."""
    microbatch: Int64s
    begin_ns: Int64s
    duration_ns: Int64s
    waited_ns: Int64s
    """The first part of the duration: others were not there yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdealSteps:
    """The ideal timeline, and the steps that it was replayed from."""

    operations: IdealOperations
    ideal_ns: int
    """When its last operation ends."""
    steps: Int64s
    """Numbers of the steps."""
    replayed_ns: Floats
    """What each takes when it is replayed with its own times."""
    measured_ns: Floats

    def cost_of(self, step: int) -> tuple[float, float]:
        """How long a step took as measured, and what it would have taken with all ranks alike: shorter by the share
        that its replay loses. Nanoseconds."""
        at = int(np.searchsorted(self.steps, step))
        took_ns = float(self.measured_ns[at])
        return took_ns, took_ns * self.ideal_ns / float(self.replayed_ns[at])

    def refusal_of(self, step: int) -> str:
        """Why the timeline says nothing about a step; empty where it does."""
        if step not in self.steps:
            return f"step {step} does not have the same operations on every rank"
        at = int(np.searchsorted(self.steps, step))
        error = abs(float(self.replayed_ns[at] / self.measured_ns[at]) - 1)
        return missed(error) if error > MAX_REPLAY_ERROR else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotReplayed:
    """No ideal timeline, and why."""

    why: str


def ideal_steps(view: RunView) -> IdealSteps | NotReplayed:
    """The ideal timeline of the steps of a view."""
    run, refusal = replay_of(view)
    if run is None:
        return NotReplayed(why=refusal)
    assume, rows = run.assumptions, run.times.rows
    operations = _operations(run)
    return IdealSteps(
        operations=operations,
        ideal_ns=int((operations.begin_ns + operations.duration_ns).max()),
        steps=view.steps[rows],
        replayed_ns=1e9 * assume.with_times(assume.own_s)[0],
        measured_ns=view.step_ns[rows],
    )


def _operations(run: Replayed) -> IdealOperations:
    """All lanes are alike, so the first one stands for all."""
    slots, ideal_s = run.times.slots, run.assumptions.ideal_s
    begin_s, end_s = np.zeros(len(slots)), np.zeros(len(slots))

    def note(slot: int, begin: Lane, end: Lane) -> None:
        begin_s[slot], end_s[slot] = begin.flat[0], end.flat[0]

    replay(run.assumptions.program, lambda slot: np.full((1, 1, 1, 1), ideal_s[slot]), watch=note)
    # An own time may lie a little below zero where clocks differ, and a median with it.
    duration_s = np.maximum(end_s - begin_s, 0)
    waited_s = np.clip(duration_s - ideal_s, 0, duration_s)
    return IdealOperations(
        pp=slots.pp,
        stage=slots.stage,
        occurrence=slots.occurrence,
        microbatch=slots.microbatch,
        begin_ns=_nanoseconds(begin_s),
        duration_ns=_nanoseconds(duration_s),
        waited_ns=_nanoseconds(waited_s),
    )


def _nanoseconds(seconds: Floats) -> Int64s:
    return np.rint(1e9 * seconds).astype(np.int64)
