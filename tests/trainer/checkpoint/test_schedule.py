"""All ranks decide together when to checkpoint."""

from tests.each_case import each_case
from trainer.checkpoint.schedule import MOST_STEPS, Schedule, Signals, paying_interval
from trainer.config import CheckpointConfig

RANKS = 4
QUIET = Signals()


def schedule(*, every: int = 3, done: int = 0, num_steps: int = 100, **settings: float) -> Schedule:
    return Schedule(CheckpointConfig(every=every, **settings), done=done, num_steps=num_steps, world_size=RANKS)


def snapshots(made: Schedule, steps: range, signals: Signals = QUIET) -> list[int]:
    return [done for done in steps if made.decide(done, signals).snapshot]


def test_snapshot_interval_counts_from_the_loaded_checkpoint() -> None:
    assert snapshots(schedule(every=3, done=10), range(11, 20)) == [13, 16, 19]


def test_snapshot_is_taken_after_the_last_step() -> None:
    assert snapshots(schedule(every=30, num_steps=8), range(1, 9)) == [8]


def test_snapshot_is_delayed_while_a_rank_still_writes_the_previous_one() -> None:
    made = schedule(every=3)
    assert not made.decide(3, Signals(busy=1)).snapshot
    assert not made.decide(4, Signals(busy=2)).snapshot
    assert made.decide(5, Signals()).snapshot
    assert snapshots(made, range(6, 10)) == [8]


def test_snapshot_at_the_end_of_a_job_is_taken_although_a_rank_is_busy() -> None:
    decision = schedule().decide(1, Signals(ended=1, busy=1))
    assert decision.snapshot
    assert decision.end


def test_checkpoint_is_abandoned_when_one_part_failed() -> None:
    assert schedule().decide(1, Signals(failed=1)).abandon
    assert not schedule().decide(1, Signals()).abandon


def test_automatic_interval_follows_from_the_measured_snapshot_cost() -> None:
    made = schedule(every=0, failure_every_s=5000.0)
    signals = Signals(cost_s=RANKS * 0.01, step_s=RANKS * 2.0)
    assert snapshots(made, range(1, 16), signals) == [5, 10, 15]


@each_case(("step_s", "steps"), [(0.0, 1), (0.01, MOST_STEPS), (0.5, 4), (30.0, 1)])
def test_checkpoint_decisions_are_about_two_seconds_apart(step_s: float, steps: int) -> None:
    assert schedule().decide(1, Signals(step_s=RANKS * step_s)).steps_to_next == steps


@each_case(("cost_s", "failure_every_s", "expected"), [(2.0, 10_000.0, 200), (0.0, 10_000.0, 1), (0.5, 100.0, 10)])
def test_paying_interval_follows_youngs_formula(cost_s: float, failure_every_s: float, expected: int) -> None:
    assert paying_interval(cost_s, step_s=1.0, failure_every_s=failure_every_s) == expected


def test_paying_interval_loses_the_least_time() -> None:
    cost_s, failure_every_s = 3.0, 7200.0

    def lost(interval_s: float) -> float:
        return cost_s / interval_s + interval_s / 2 / failure_every_s

    best = paying_interval(cost_s, step_s=1.0, failure_every_s=failure_every_s)
    assert lost(best) == min(lost(each) for each in range(1, 1000))
