"""Stall detection with a manual clock and ranks made by hand. A healthy slow phase is not a stall."""

from dataclasses import dataclass, field

import pytest

from telemetry.agent.settings import StallSettings
from telemetry.agent.stall import SECOND_NS, Phase, RankSample, StallDetector
from telemetry.errors import UsageError
from tests.each_case import each_case

SETTINGS = StallSettings(factor=5, floor_s=10, ceiling_s=300, confirm_s=1)


@dataclass
class Job:
    """Four ranks at the same step, sampled each second."""

    detector: StallDetector = field(default_factory=lambda: StallDetector(SETTINGS))
    now_s: float = 1000.0
    step: int = -1
    step_started_s: float = 0.0
    inside_step: bool = False
    takes_its_time: bool = False
    moves: int = 0
    ranks: tuple[int, ...] = (0, 1, 2, 3)

    def look(self) -> Phase:
        one = RankSample(
            step=self.step,
            step_started_ns=round(self.step_started_s * SECOND_NS),
            inside_step=self.inside_step,
            takes_its_time=self.takes_its_time,
            counters=self.moves,
        )
        return self.detector.update(round(self.now_s * SECOND_NS), dict.fromkeys(self.ranks, one))

    def begin_step(self) -> None:
        self.step += 1
        self.moves += 1
        self.step_started_s = self.now_s
        self.inside_step = True

    def run(self, num_steps: int, *, step_s: float = 2.0) -> set[Phase]:
        seen: set[Phase] = set()
        for _ in range(num_steps):
            self.begin_step()
            seen |= self.wait(step_s)
        return seen

    def wait(self, seconds: float, *, moving: bool = False) -> set[Phase]:
        """Take a sample each second. No step begins. With ``moving``, only the counters change."""
        seen: set[Phase] = set()
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.now_s = min(self.now_s + 1, end_s)
            self.moves += moving
            seen.add(self.look())
        return seen


@pytest.fixture
def job() -> Job:
    return Job()


@pytest.fixture
def running(job: Job) -> Job:
    """A job with steps of two seconds. The threshold is then the floor."""
    assert job.run(20) == {Phase.GOING}
    return job


def test_stall_is_reported_when_a_step_takes_longer_than_the_threshold(running: Job) -> None:
    running.begin_step()
    assert running.wait(10) == {Phase.GOING}
    assert running.wait(1) == {Phase.SUSPECTED}
    assert running.wait(1) == {Phase.STALLED}
    assert running.wait(100) == {Phase.STALLED}


def test_stall_threshold_is_longer_when_steps_are_slow(job: Job) -> None:
    job.run(10, step_s=8)
    job.begin_step()
    assert job.wait(39) == {Phase.GOING}
    assert Phase.STALLED in job.wait(3)


def test_stall_threshold_is_at_most_the_ceiling_when_steps_are_very_slow(job: Job) -> None:
    job.run(10, step_s=100)
    job.begin_step()
    assert Phase.STALLED in job.wait(302)


def test_step_that_takes_three_times_as_long_is_not_a_stall(job: Job) -> None:
    job.run(10, step_s=8)
    assert job.run(1, step_s=24) == {Phase.GOING}
    assert job.run(5, step_s=8) == {Phase.GOING}


def test_slow_first_step_that_compiles_is_not_a_stall(job: Job) -> None:
    assert job.wait(60) == {Phase.GOING}
    assert job.run(1, step_s=120) == {Phase.GOING}
    assert job.run(5) == {Phase.GOING}


def test_stall_threshold_is_the_ceiling_before_the_first_step(job: Job) -> None:
    job.look()
    assert job.wait(300) == {Phase.GOING}
    assert Phase.STALLED in job.wait(2)


@pytest.mark.parametrize("inside_step", [False, True])
def test_checkpoint_or_evaluation_is_not_a_stall(running: Job, inside_step: bool) -> None:
    running.begin_step()
    running.inside_step, running.takes_its_time = inside_step, True
    assert running.wait(120) == {Phase.GOING}
    running.inside_step, running.takes_its_time = True, False
    assert running.wait(3) == {Phase.GOING}
    assert running.run(5) == {Phase.GOING}


def test_checkpoint_longer_than_the_ceiling_is_a_stall(running: Job) -> None:
    running.begin_step()
    running.takes_its_time = True
    assert Phase.STALLED in running.wait(302)


def test_work_between_steps_is_not_a_stall(running: Job) -> None:
    running.inside_step = False
    assert running.wait(120) == {Phase.GOING}


def test_slow_step_is_not_a_stall_while_counters_move(running: Job) -> None:
    running.begin_step()
    assert running.wait(60, moving=True) == {Phase.GOING, Phase.SUSPECTED}
    assert Phase.STALLED in running.wait(3)


def test_stall_ends_with_the_next_step_and_a_second_stall_is_reported(running: Job) -> None:
    running.begin_step()
    assert Phase.STALLED in running.wait(15)
    assert running.run(5) == {Phase.GOING}
    running.begin_step()
    assert running.wait(10) == {Phase.GOING}
    assert Phase.STALLED in running.wait(3)


def test_stall_ends_when_the_job_restarts_from_its_first_step(running: Job) -> None:
    running.begin_step()
    running.wait(15)
    running.step, running.inside_step = -1, False
    assert running.wait(60) == {Phase.GOING}
    assert running.run(5) == {Phase.GOING}


def test_finished_job_without_ranks_is_not_a_stall(running: Job) -> None:
    running.ranks = ()
    assert running.wait(1000) == {Phase.GOING}


def test_agent_that_starts_during_a_stall_reports_it_only_after_the_ceiling(job: Job) -> None:
    job.step, job.step_started_s, job.inside_step = 50, job.now_s - 250, True
    assert job.wait(50) == {Phase.GOING}
    assert Phase.STALLED in job.wait(3)


@each_case("values", [{"factor": 1}, {"floor_s": 0}, {"floor_s": 20, "ceiling_s": 10}])
def test_invalid_stall_settings_raise_usage_error(values: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="hint: "):
        StallSettings(**values)


def test_threshold_is_learned_from_the_rank_with_most_steps_recorded_before_the_first_sample(job: Job) -> None:
    """Sampling of eight ranks takes time: the first rank had recorded one step, the last rank seven."""
    for num_steps in (1, 7):
        job.detector.learn([2 * SECOND_NS] * num_steps)
    job.run(1)
    job.begin_step()
    assert job.wait(10) == {Phase.GOING}
    assert Phase.STALLED in job.wait(2)
    job.detector.learn([100 * SECOND_NS] * 9)
    assert job.detector.threshold_ns == 10 * SECOND_NS
