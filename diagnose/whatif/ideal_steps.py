"""The replay with ideal times, as a timeline. With ideal times, all replicas and all steps are alike. So there is one
timeline for each pipeline rank.

    recorded    pp0   |== F0 ==|== F1 ==|          |=== B0 ===|   ...
    ideal       pp0   |= F0 =|= F1 =|     |== B0 ==|  ...              |<- lost ->|
"""

from dataclasses import dataclass, replace

import numpy as np

from diagnose.model.operations import Int64s
from diagnose.model.view import RunView
from diagnose.whatif.analysis import MAX_REPLAY_ERROR, Replayed, missed, replay_of
from diagnose.whatif.replay import Lane, replay
from diagnose.whatif.slots import FloatVector


@dataclass(frozen=True, slots=True, kw_only=True)
class IdealOperations:
    """Operations of every pipeline rank, columns of one length. Nanoseconds since the begin of the step's first
    operation."""

    pp: Int64s
    stage: Int64s
    occurrence: Int64s
    """Number of the operation among those of its stage on its rank in the step, from 0."""
    microbatch: Int64s
    begin_ns: Int64s
    duration_ns: Int64s
    waited_ns: Int64s
    """The first part of the duration: waiting for other ranks."""

    def scaled(self, scale: float) -> "IdealOperations":
        """The operations with all times multiplied by ``scale``. Both ends are rounded, so that neighbours do not
        overlap."""
        begin_ns, waited_ns = (np.rint(scale * ns).astype(np.int64) for ns in (self.begin_ns, self.waited_ns))
        duration_ns = np.rint(scale * (self.begin_ns + self.duration_ns)).astype(np.int64) - begin_ns
        return replace(self, begin_ns=begin_ns, duration_ns=duration_ns, waited_ns=np.minimum(waited_ns, duration_ns))


@dataclass(frozen=True, slots=True, kw_only=True)
class IdealSteps:
    """The ideal timeline, and the steps that it is replayed from."""

    operations: IdealOperations
    ideal_ns: int
    """End of its last operation."""
    steps: Int64s
    """Numbers of the steps."""
    replayed_ns: FloatVector
    """Time of each step, replayed with its own times."""
    measured_ns: FloatVector

    def cost_of(self, step: int) -> tuple[float, float]:
        """Measured time of a step, and its time with all ranks alike: shorter by the share that its replay loses.
        Nanoseconds."""
        return float(self.measured_ns[self._row(step)]), self.ideal_ns * self.scale_of(step)

    def scale_of(self, step: int) -> float:
        """Measured time of a step / its replayed time. Times of the replay are multiplied by it to compare them with
        the measured step."""
        at = self._row(step)
        return float(self.measured_ns[at] / self.replayed_ns[at])

    def refusal_of(self, step: int) -> str:
        """Why the timeline does not cover a step; empty if it does."""
        if step not in self.steps:
            return f"step {step} does not have the same operations on every rank"
        error = abs(1 / self.scale_of(step) - 1)
        return missed(error) if error > MAX_REPLAY_ERROR else ""

    def _row(self, step: int) -> int:
        return int(np.searchsorted(self.steps, step))


@dataclass(frozen=True, slots=True, kw_only=True)
class NotReplayed:
    """The reason why there is no ideal timeline."""

    why: str


def ideal_steps(view: RunView) -> IdealSteps | NotReplayed:
    """The ideal timeline of the steps of a view, or why there is none."""
    run, refusal = replay_of(view)
    if run is None:
        return NotReplayed(why=refusal)
    assume, rows = run.assumptions, run.times.rows
    operations = _ideal_operations(run)
    return IdealSteps(
        operations=operations,
        ideal_ns=int((operations.begin_ns + operations.duration_ns).max()),
        steps=view.steps[rows],
        replayed_ns=1e9 * assume.with_times(assume.own_s)[0],
        measured_ns=view.step_ns[rows],
    )


def _ideal_operations(run: Replayed) -> IdealOperations:
    """The operations of the replay with ideal times. All lanes are alike, so the first one is used."""
    slots, ideal_s = run.times.slots, run.assumptions.ideal_s
    begin_s, end_s = np.zeros(len(slots)), np.zeros(len(slots))

    def note(slot: int, begin: Lane, end: Lane) -> None:
        begin_s[slot], end_s[slot] = begin.flat[0], end.flat[0]

    replay(run.assumptions.program, lambda slot: np.full((1, 1, 1, 1), ideal_s[slot]), watch=note)
    # If clocks differ, an own time may be slightly negative, and so may a median.
    end_s = np.maximum(end_s, begin_s)
    duration_s = end_s - begin_s
    waited_s = np.clip(duration_s - ideal_s, 0, duration_s)
    begin_ns = _nanoseconds(begin_s)
    duration_ns = _nanoseconds(end_s) - begin_ns  # both ends are rounded, so that neighbours do not overlap
    return IdealOperations(
        pp=slots.pp,
        stage=slots.stage,
        occurrence=slots.occurrence,
        microbatch=slots.microbatch,
        begin_ns=begin_ns,
        duration_ns=duration_ns,
        waited_ns=np.minimum(_nanoseconds(waited_s), duration_ns),
    )


def _nanoseconds(seconds: FloatVector) -> Int64s:
    return np.rint(1e9 * seconds).astype(np.int64)
