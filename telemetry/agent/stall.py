"""Decides whether a job has stalled: a state machine over the state pages of the ranks of one host. It does no I/O.

    GOING --no step for longer than usual--> SUSPECTED --nothing changed between two samples--> STALLED
      ^  <---- something changed: slow --------'                                               |
      '----------------------------- a rank began another step --------------------------------'

The limit is learned: ``factor`` times the usual step, within floor and ceiling. Only the ceiling applies before the
first few steps, while any rank writes a checkpoint or evaluates, and while no rank is inside a step. The ceiling is
below the 600 s after which NCCL's watchdog ends a job.
"""

from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import median

from telemetry.agent.settings import StallSettings
from telemetry.record.state_page import LiveState
from telemetry.stages import Stage

LEARN_STEPS = 3
REMEMBER = 32
SECOND_NS = 1_000_000_000
_TAKE_THEIR_TIME = frozenset((Stage.CHECKPOINT_SNAPSHOT, Stage.CHECKPOINT_WRITE, Stage.EVALUATION))


class Phase(StrEnum):
    GOING = "going"
    SUSPECTED = "suspected"
    STALLED = "stalled"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSample:
    """One rank at one moment. Times are CLOCK_MONOTONIC of the host."""

    step: int
    """The current step; -1 before the first step."""
    step_started_ns: int
    inside_step: bool
    takes_its_time: bool
    """Whether it writes a checkpoint or evaluates."""
    counters: Hashable
    """Counters that change while the rank makes progress."""

    @classmethod
    def of(cls, state: LiveState) -> "RankSample":
        stages = {span.stage for span in state.open_spans}
        operations = tuple((operation.issued, operation.completed) for operation in state.operations)
        return cls(
            step=state.step,
            step_started_ns=state.step_started_ns,
            inside_step=Stage.STEP in stages,
            takes_its_time=bool(stages & _TAKE_THEIR_TIME),
            counters=(state.step, state.recorded, operations, state.open_spans),
        )


@dataclass(slots=True)
class StallDetector:
    """The stall state of one job on one host."""

    settings: StallSettings
    phase: Phase = Phase.GOING
    _usual: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBER))
    """Nanoseconds of a step, one number for each sample with a new step."""
    _num_learned: int = 0
    _front: RankSample | None = None
    """The rank that is ahead, at the start of its step."""
    _since_ns: int = 0
    """Start of the last step, or time of the first sample."""
    _excused_ns: int = 0
    """The last time at which a rank wrote a checkpoint or evaluated, or no rank was inside a step."""
    _suspicion: tuple[int, dict[int, Hashable]] | None = None

    @property
    def threshold_ns(self) -> int:
        """The current limit for the time without a new step."""
        ceiling_ns = self.settings.ceiling_s * SECOND_NS
        if self._num_learned < LEARN_STEPS:
            return round(ceiling_ns)
        wanted = self.settings.factor * median(self._usual)
        return round(min(max(wanted, self.settings.floor_s * SECOND_NS), ceiling_ns))

    def learn(self, steps_ns: Sequence[int]) -> None:
        """Learn from the recorded step durations of a rank. Before the first sample, the longest list is used. After
        it, durations are used only if nothing was learned yet."""
        if len(steps_ns) > self._num_learned and (self._front is None or not self._num_learned):
            self._usual.clear()
            self._usual.extend(steps_ns)
            self._num_learned = len(steps_ns)

    @property
    def has_samples(self) -> bool:
        return self._front is not None

    def update(self, now_ns: int, ranks: Mapping[int, RankSample]) -> Phase:
        """Add a sample of the living ranks at ``now_ns``."""
        if not ranks:
            self.phase, self._suspicion = Phase.GOING, None
        elif self._steps_on(now_ns, ranks):
            self._excuse(now_ns, ranks)
            self.phase, self._suspicion = Phase.GOING, None
        elif self.phase is not Phase.STALLED:
            self._doubt(now_ns, ranks)
        return self.phase

    def _steps_on(self, now_ns: int, ranks: Mapping[int, RankSample]) -> bool:
        """Whether the rank that is ahead is in another step: a later one, or an earlier one if the job began again."""
        ahead = max(ranks.values(), key=lambda rank: (rank.step, -rank.step_started_ns))
        before = self._front
        if before is not None and ahead.step == before.step:
            return False
        self._front = ahead
        self._since_ns = ahead.step_started_ns if ahead.step >= 0 else now_ns
        if before is not None and 0 <= before.step < ahead.step:
            num_steps = ahead.step - before.step
            self._usual.append((ahead.step_started_ns - before.step_started_ns) / num_steps)
            self._num_learned += num_steps
        return before is not None

    def _excuse(self, now_ns: int, ranks: Mapping[int, RankSample]) -> bool:
        samples = ranks.values()
        excused = any(rank.takes_its_time for rank in samples) or not any(rank.inside_step for rank in samples)
        if excused:
            self._excused_ns = now_ns
        return excused

    def _doubt(self, now_ns: int, ranks: Mapping[int, RankSample]) -> None:
        excused = self._excuse(now_ns, ranks)
        usual_over = not excused and now_ns - max(self._since_ns, self._excused_ns) > self.threshold_ns
        all_over = now_ns - self._since_ns > self.settings.ceiling_s * SECOND_NS
        if not (usual_over or all_over):
            self.phase, self._suspicion = Phase.GOING, None
            return
        counters = {rank: sample.counters for rank, sample in ranks.items()}
        if self._suspicion is None or self._suspicion[1] != counters:
            self.phase, self._suspicion = Phase.SUSPECTED, (now_ns, counters)
        elif now_ns - self._suspicion[0] >= self.settings.confirm_s * SECOND_NS:
            self.phase = Phase.STALLED
