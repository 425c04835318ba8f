"""All ranks decide together when to checkpoint."""

import pytest

from trainer.checkpoint.schedule import MOST_STEPS, Schedule, Signals, paying_interval
from trainer.config import CheckpointConfig

RANKS = 4
QUIET = Signals()


def schedule(*, every: int = 3, done: int = 0, num_steps: int = 100, **settings: float) -> Schedule:
    return Schedule(CheckpointConfig(every=every, **settings), done=done, num_steps=num_steps, world_size=RANKS)


def snapshots(made: Schedule, steps: range, signals: Signals = QUIET) -> list[int]:
    return [done for done in steps if made.decide(done, signals).snapshot]


def test_a_snapshot_is_taken_every_so_many_steps_after_the_one_that_was_loaded() -> None:
    assert snapshots(schedule(every=3, done=10), range(11, 20)) == [13, 16, 19]


def test_the_last_step_is_saved() -> None:
    assert snapshots(schedule(every=30, num_steps=8), range(1, 9)) == [8]


def test_a_snapshot_waits_while_any_rank_still_writes_the_one_before() -> None:
    made = schedule(every=3)
    assert not made.decide(3, Signals(busy=1)).snapshot
    assert not made.decide(4, Signals(busy=2)).snapshot
    assert made.decide(5, Signals()).snapshot
    assert snapshots(made, range(6, 10)) == [8]


def test_a_job_that_is_asked_to_end_saves_although_a_rank_is_busy() -> None:
    decision = schedule().decide(1, Signals(ended=1, busy=1))
    assert decision.snapshot
    assert decision.end


def test_a_checkpoint_of_which_one_part_failed_is_abandoned() -> None:
    assert schedule().decide(1, Signals(failed=1)).abandon
    assert not schedule().decide(1, Signals()).abandon


def test_the_interval_follows_from_the_measured_cost() -> None:
    made = schedule(every=0, failure_every_s=5000.0)
    signals = Signals(cost_s=RANKS * 0.01, step_s=RANKS * 2.0)
    assert snapshots(made, range(1, 16), signals) == [5, 10, 15]


@pytest.mark.parametrize(("step_s", "steps"), [(0.0, 1), (0.01, MOST_STEPS), (0.5, 4), (30.0, 1)])
def test_decisions_on_a_gpu_are_about_two_seconds_apart(step_s: float, steps: int) -> None:
    assert schedule().decide(1, Signals(step_s=RANKS * step_s)).steps_to_next == steps


@pytest.mark.parametrize(
    ("cost_s", "failure_every_s", "expected"), [(2.0, 10_000.0, 200), (0.0, 10_000.0, 1), (0.5, 100.0, 10)]
)
def test_the_paying_interval_is_that_of_young(cost_s: float, failure_every_s: float, expected: int) -> None:
    assert paying_interval(cost_s, step_s=1.0, failure_every_s=failure_every_s) == expected


def test_the_paying_interval_costs_the_least() -> None:
    cost_s, failure_every_s = 3.0, 7200.0

    def lost(interval_s: float) -> float:
        return cost_s / interval_s + interval_s / 2 / failure_every_s

    best = paying_interval(cost_s, step_s=1.0, failure_every_s=failure_every_s)
    assert lost(best) == min(lost(each) for each in range(1, 1000))
