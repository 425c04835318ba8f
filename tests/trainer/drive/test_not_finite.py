"""Decisions of the driver on NaN, and on findings about the loss."""

from dataclasses import replace

import pytest

from tests.each_case import each_case
from tests.trainer.drive.cluster import RANKS_PER_NODE, Cluster
from trainer.drive.job import Job, NodeState, Phase
from trainer.drive.policy import Policy
from trainer.drive.records import Action, Request, Rollback, Work
from trainer.drive.settings import DriveConfig
from trainer.json_records import decode, encode
from trainer.rank_status import FAILED, NOT_FINITE

ACTS = (*DriveConfig(num_nodes=1).act_on, "loss-anomaly")
NUM_STEPS = 100


def acting(**settings: object) -> Cluster:
    """A cluster that trains attempt 0 and acts on loss anomalies."""
    cluster = Cluster(act_on=ACTS, **settings)
    cluster.train(0)
    return cluster


def end_not_finite(cluster: Cluster, *statuses: int) -> None:
    """All ranks of all nodes end; those of the first node with ``statuses``, if there are some."""
    first, *others = cluster.job.members
    cluster.end_ranks(first, *(statuses or [NOT_FINITE] * RANKS_PER_NODE))
    for name in others:
        cluster.end_ranks(name, *[NOT_FINITE] * RANKS_PER_NODE)


def reasons(cluster: Cluster, name: str) -> list[str]:
    return [decision.reason for decision in cluster.decisions if decision.name == name]


def rollbacks(cluster: Cluster) -> set[Rollback | None]:
    """The rollbacks in the orders to train."""
    orders = [cluster.policy.order(name) for name in cluster.nodes]
    return {order.rollback for order in orders if order.work is Work.TRAIN}


def test_all_nodes_of_the_attempt_are_checked_after_nan_and_the_job_continues() -> None:
    cluster = Cluster()
    cluster.train(0)
    members = cluster.job.members
    cluster.step(7)
    end_not_finite(cluster)
    cluster.turn()
    assert reasons(cluster, "not-finite") == ["loss or gradient norm is not finite; ranks ended in step 7"]
    assert {cluster.state(name) for name in members} == {NodeState.SUSPECT}
    cluster.train(1)
    assert set(members) <= set(reasons(cluster, "check")[-1].removeprefix("check ").split(", "))
    assert rollbacks(cluster) == {None}


@pytest.mark.parametrize("other", [FAILED, -9], ids=["lost its peer", "killed"])
def test_nan_is_the_reported_cause_although_another_rank_failed_or_was_killed(other: int) -> None:
    cluster = Cluster()
    cluster.train(0)
    end_not_finite(cluster, other)
    cluster.train(1)
    assert "not-finite" in cluster.names
    assert "rank-failed" not in cluster.names


def test_nan_while_a_pause_saves_the_step_is_reported_and_the_job_still_pauses() -> None:
    cluster = Cluster()
    cluster.train(0)
    cluster.ask(Request(action=Action.PAUSE))
    assert cluster.job.phase is Phase.SAVE
    end_not_finite(cluster)
    cluster.until(Phase.PAUSED)
    assert "not-finite" in cluster.names


def test_repeated_nan_in_the_same_steps_ends_the_job() -> None:
    cluster = Cluster(max_failures=2)
    for attempt in range(3):
        cluster.train(attempt)
        for step in (5, 6, 7):
            cluster.step(step)
        end_not_finite(cluster)
        cluster.turn()
    cluster.until(Phase.GAVE_UP)
    assert cluster.job.reason.startswith("3 attempts in a row made no progress; the last one: loss or gradient norm")


def test_loss_anomaly_only_gives_advice_by_default() -> None:
    cluster = Cluster()
    cluster.train(0)
    cluster.find("loss-anomaly", first_step=51)
    assert (cluster.job.phase, cluster.job.rollback) == (Phase.TRAIN, None)
    assert "advise" in cluster.names


def test_a_loss_anomaly_stops_the_ranks_without_a_checkpoint_and_rolls_back_if_the_policy_acts() -> None:
    cluster = acting()
    cluster.step(60)
    cluster.find("loss-anomaly", first_step=51)
    assert cluster.job.phase is Phase.STOP
    assert {cluster.state(name) for name in cluster.job.members} == {NodeState.SUSPECT}
    cluster.train(1)
    assert rollbacks(cluster) == {Rollback(attempt=0, before_step=51)}
    assert reasons(cluster, "roll-back") == ["checkpoints of 51 steps or more are not used: loss-anomaly"]


def test_rollback_is_kept_after_a_driver_restart_and_a_later_fault() -> None:
    cluster = acting()
    cluster.find("loss-anomaly", first_step=51)
    cluster.policy = Policy(cluster.config, decode(Job, encode(cluster.job)))
    cluster.decisions += cluster.policy.take_over(cluster.now_s, NUM_STEPS, started_ns=0)
    cluster.train(1)
    cluster.end_ranks(cluster.job.members[0], -9)
    cluster.train(2)
    assert rollbacks(cluster) == {Rollback(attempt=0, before_step=51)}


def test_rollback_changes_the_outline_of_the_job() -> None:
    job = Job(run_id="run")
    assert replace(job, rollback=Rollback(attempt=0, before_step=1)).outline != job.outline


def test_loss_anomaly_of_an_attempt_that_just_ended_rolls_back_the_next_attempt() -> None:
    cluster = acting()
    cluster.end_ranks(cluster.job.members[0], -9)
    cluster.until(Phase.GATHER)
    cluster.find("loss-anomaly", first_step=51)
    cluster.train(1)
    assert rollbacks(cluster) == {Rollback(attempt=0, before_step=51)}
    assert "loss-anomaly" not in cluster.names


def test_loss_anomaly_of_the_previous_attempt_stops_the_current_attempt_only_once() -> None:
    cluster = acting()
    cluster.end_ranks(cluster.job.members[0], -9)
    cluster.train(1)
    cluster.find("loss-anomaly", first_step=51, attempt=0)
    assert cluster.job.phase is Phase.STOP
    cluster.train(2)
    assert rollbacks(cluster) == {Rollback(attempt=1, before_step=51)}
    for attempt in (0, 1):
        cluster.find("loss-anomaly", first_step=51, attempt=attempt)
    assert cluster.job.phase is Phase.TRAIN


@each_case("fields", [{"attempt": 7}, {"run_id": "another"}, {"active": False}])
def test_loss_anomaly_of_another_attempt_or_run_or_a_resolved_one_is_ignored(fields: dict[str, object]) -> None:
    cluster = acting()
    cluster.find("loss-anomaly", first_step=51, **fields)
    assert (cluster.job.phase, cluster.job.rollback) == (Phase.TRAIN, None)


def test_loss_anomaly_without_a_step_only_gives_advice() -> None:
    cluster = acting()
    cluster.find("loss-anomaly")
    assert cluster.job.phase is Phase.TRAIN
    assert "advise" in cluster.names


def test_repeated_loss_anomaly_ends_the_job_although_each_attempt_gets_one_step_further() -> None:
    cluster = acting(max_failures=2)
    for attempt in range(3):
        cluster.train(attempt)
        cluster.step(60 + attempt)
        cluster.find("loss-anomaly", first_step=51 + attempt)
    cluster.until(Phase.GAVE_UP)
    assert len(reasons(cluster, "roll-back")) == 3


def test_loss_anomalies_in_later_steps_do_not_end_the_job() -> None:
    cluster = acting(max_failures=1)
    for attempt in range(4):
        cluster.train(attempt)
        cluster.step(20 * attempt + 19)
        cluster.find("loss-anomaly", first_step=20 * attempt + 10)
    cluster.train(4)
