"""Decisions of the driver, without processes."""

import random
from contextlib import suppress
from dataclasses import replace

import pytest

from telemetry.errors import UsageError
from tests.each_case import each_case
from tests.trainer.drive.cluster import Cluster
from tests.trainer.drive.made_network import MadeNetwork
from trainer.drive.failed_ranks import STOPPED_S
from trainer.drive.job import Job, NodeState, Phase
from trainer.drive.policy import Policy
from trainer.drive.records import Action, CheckReport, Measured, Request, Work
from trainer.drive.rounds import CHECK_S
from trainer.json_records import decode, encode

NUM_STEPS = 100


def test_all_nodes_are_checked_before_the_first_attempt() -> None:
    cluster = Cluster()
    cluster.train(0)
    assert cluster.job.members == ("node-0", "node-1", "node-2", "node-3")
    assert cluster.state("node-4") is NodeState.READY
    assert cluster.names[-2:] == ["admit", "start"]


def test_job_is_done_when_all_ranks_end_with_status_0() -> None:
    cluster = Cluster()
    cluster.train(0)
    for name in cluster.job.members:
        cluster.end_ranks(name, 0, 0)
    cluster.until(Phase.DONE)
    cluster.turn()
    assert all(cluster.policy.order(name).work is Work.LEAVE for name in cluster.nodes)


def test_the_node_of_a_killed_rank_is_checked_and_the_job_continues() -> None:
    cluster = Cluster()
    cluster.train(0)
    cluster.step(7)
    cluster.end_ranks("node-2", -9)
    cluster.train(1)
    assert "rank-failed" in cluster.names
    fault = next(decision for decision in cluster.decisions if decision.name == "rank-failed")
    assert (fault.node, fault.reason) == ("node-2", "rank 4 was killed by SIGKILL on node-2")
    assert NodeState.BLOCKED not in {node.state for node in cluster.job.nodes.values()}


def test_rank_failed_decision_contains_the_error_of_the_rank() -> None:
    cluster = Cluster()
    cluster.train(0)
    cluster.end_ranks("node-2", 1)
    report = cluster.nodes["node-2"].report
    (ended,) = report.ended
    cluster.nodes["node-2"].report = replace(report, ended=(replace(ended, reason="OSError: no such file"),))
    cluster.train(1)
    fault = next(decision for decision in cluster.decisions if decision.name == "rank-failed")
    assert fault.reason == "rank 4 ended with status 1 (OSError: no such file) on node-2"


def test_failed_checkpoint_is_recorded_once_until_one_succeeds_and_the_job_continues() -> None:
    def report_problem(problem: str) -> None:
        for name in ("node-1", "node-2"):
            node = cluster.nodes[name]
            node.report = replace(node.report, checkpoint_problem=problem)
        cluster.turn()
        cluster.turn()

    cluster = Cluster()
    cluster.train(0)
    for problem, count in (("the disk is full", 1), ("the disk is full, again", 1), ("", 1), ("it is full", 2)):
        report_problem(problem)
        assert cluster.names.count("checkpoint-failed") == count
    assert cluster.job.attempt == 0
    found = [each for each in cluster.decisions if each.name == "checkpoint-failed"]
    assert [(each.node, each.reason) for each in found] == [("node-1", "the disk is full"), ("node-1", "it is full")]
    for name in cluster.job.members:
        cluster.end_ranks(name, 0, 0)
    cluster.until(Phase.DONE)
    assert cluster.job.reason == "all steps are done after attempt 0, but the last one is not saved: it is full"


def test_spare_replaces_a_suspect_although_the_suspect_passes_its_check() -> None:
    cluster = Cluster()
    cluster.train(0)
    cluster.end_ranks("node-2", -9)
    cluster.train(1)
    assert cluster.job.members == ("node-0", "node-1", "node-4", "node-3")
    assert cluster.state("node-2") is NodeState.READY


def test_nodes_of_ranks_that_lost_their_peer_are_not_suspected() -> None:
    cluster = Cluster()
    cluster.train(0)
    cluster.end_ranks("node-0", 1, 1)
    cluster.turn()
    cluster.end_ranks("node-3", -9, 1)
    cluster.train(1)
    assert [node.name for node in cluster.job.nodes.values() if node.num_faults] == ["node-3"]


def test_node_whose_ranks_raised_first_is_suspected() -> None:
    cluster = Cluster()
    cluster.train(0)
    cluster.end_ranks("node-0", 1, 1, at_s=5.0)
    cluster.end_ranks("node-1", 1, 1, at_s=4.0)
    cluster.train(1)
    assert [node.name for node in cluster.job.nodes.values() if node.num_faults] == ["node-1"]


def test_a_node_that_fails_its_check_is_blocked_with_the_reason() -> None:
    cluster = Cluster()
    cluster.train(0)
    cluster.nodes["node-1"].broken = True
    cluster.end_ranks("node-1", -11)
    cluster.train(1)
    assert cluster.state("node-1") is NodeState.BLOCKED
    assert "gemm cpu" in cluster.job.nodes["node-1"].reason
    assert "node-1" not in cluster.job.members


def test_a_slow_spare_is_not_admitted() -> None:
    cluster = Cluster()
    cluster.nodes["node-4"].gflops = 30.0
    cluster.train(0)
    assert cluster.state("node-4") is NodeState.BLOCKED
    assert cluster.job.nodes["node-4"].reason.startswith(
        "slow in two rounds of checks: gemm cpu: 30 TFLOP/s, others 100 TFLOP/s"
    )


def test_reason_of_a_slow_node_says_how_to_admit_it_again() -> None:
    cluster = Cluster()
    cluster.nodes["node-4"].gflops = 30.0
    cluster.train(0)
    assert cluster.job.nodes["node-4"].reason.endswith("rankscope drive resume node-4")


def test_a_node_that_was_slow_once_is_not_blocked() -> None:
    cluster = Cluster()
    cluster.nodes["node-4"].slow_checks = 1
    cluster.train(0)
    assert "suspect" in cluster.names
    assert cluster.state("node-4") is NodeState.READY


def test_a_node_whose_check_is_killed_is_not_blocked_and_used_last() -> None:
    cluster = Cluster()
    cluster.nodes["node-1"].killed = True
    cluster.train(0)
    assert "node-1" not in cluster.job.members
    assert cluster.state("node-1") is NodeState.READY
    noted = [(each.name, each.reason) for each in cluster.decisions if each.node == "node-1"]
    assert noted[-2:] == [
        ("check-undecided", "the check was killed twice: the command was killed by SIGKILL"),
        ("admit", "no check found a fault"),
    ]


def test_killed_check_does_not_hide_the_fault_that_another_check_found() -> None:
    wrong = Measured(check="gemm", subject="cpu", failed=True, detail="wrong data")
    killed = Measured(check="host-memory", subject="memory", failed=False, killed=True, detail="was killed by SIGKILL")
    cluster = Cluster()
    cluster.nodes["node-1"].report = replace(
        cluster.nodes["node-1"].report, check=CheckReport(number=1, results=(wrong, killed))
    )
    cluster.train(0)
    assert cluster.state("node-1") is NodeState.BLOCKED
    assert cluster.job.nodes["node-1"].reason == "gemm cpu: wrong data"


def test_no_node_is_suspected_when_no_usable_checkpoint_exists() -> None:
    cluster = Cluster(max_failures=2)
    cluster.train(0)
    cluster.end_ranks("node-0", 65, 65)
    cluster.train(1)
    lacking = cluster.nodes[cluster.job.members[0]]
    lacking.report = replace(lacking.report, pids={}, error="no checkpoint has less than 3 steps", no_checkpoint=True)
    cluster.turn()
    (fault,) = [decision for decision in cluster.decisions if decision.name == "no-usable-checkpoint"]
    assert (fault.node, fault.reason) == ("", "no checkpoint has less than 3 steps")
    assert "not-started" not in cluster.names
    assert NodeState.SUSPECT not in {node.state for node in cluster.job.nodes.values()}


def test_no_node_is_blocked_when_the_check_finishes_on_no_node() -> None:
    cluster = Cluster()
    for node in cluster.nodes.values():
        node.gflops = 0.0
    cluster.train(0)
    assert NodeState.BLOCKED not in {node.state for node in cluster.job.nodes.values()}


def test_no_node_is_blocked_when_all_measurements_are_noisy() -> None:
    chance = random.Random(3)
    for _ in range(50):
        cluster = Cluster()
        for node in cluster.nodes.values():
            node.gflops = 100 * chance.uniform(0.7, 1.3)
        cluster.train(0)
        assert NodeState.BLOCKED not in {node.state for node in cluster.job.nodes.values()}


def test_silent_node_is_replaced_and_becomes_ready_when_it_reports_again() -> None:
    cluster = Cluster()
    cluster.train(0)
    cluster.nodes["node-1"].silent = True
    cluster.train(1)
    assert cluster.state("node-1") is NodeState.LOST
    assert cluster.job.members == ("node-0", "node-4", "node-2", "node-3")
    cluster.nodes["node-1"].silent = False
    cluster.turn()
    assert cluster.policy.order("node-1").work is not Work.TRAIN
    for _ in range(10):
        cluster.turn()
    assert cluster.state("node-1") is NodeState.READY
    assert cluster.job.phase is Phase.TRAIN


def test_restart_of_an_executor_is_recorded_and_starts_a_new_attempt() -> None:
    cluster = Cluster()
    cluster.train(0)
    cluster.nodes["node-3"].restart_executor()
    cluster.train(1)
    assert "executor-lost" in cluster.names


@pytest.mark.parametrize("is_taken_over", [False, True])
def test_ranks_that_lost_their_peer_are_not_blamed_for_an_executor_that_ended_just_before(is_taken_over: bool) -> None:
    cluster = Cluster()
    cluster.train(0)
    cluster.nodes["node-3"].silent = True
    cluster.end_ranks("node-0", 1, 1)
    cluster.turn()
    if is_taken_over:
        cluster.decisions += cluster.policy.take_over(cluster.now_s, cluster.job.num_steps, started_ns=0)
    for _ in range(5):
        cluster.turn()
    cluster.nodes["node-3"].silent = False
    cluster.nodes["node-3"].restart_executor()
    cluster.train(1)
    assert [name for name in cluster.names if name.endswith(("failed", "lost"))] == ["executor-lost"]


def test_ranks_that_lost_their_peer_are_not_blamed_for_a_silent_node() -> None:
    cluster = Cluster()
    cluster.train(0)
    cluster.nodes["node-3"].silent = True
    for _ in range(4):
        cluster.turn()
    cluster.end_ranks("node-0", 1, 1)
    for _ in range(4):
        cluster.turn()
    assert "rank-failed" not in cluster.names
    cluster.train(1)
    assert [name for name in cluster.names if name.endswith(("failed", "lost"))] == ["lost", "node-lost"]


def test_a_hang_restarts_the_job_and_its_host_is_checked() -> None:
    cluster = Cluster()
    cluster.train(0)
    cluster.find("hung-collective", "node-2")
    assert cluster.job.phase is Phase.STOP
    assert cluster.state("node-2") is NodeState.SUSPECT
    cluster.train(1)


@each_case("fields", [{"attempt": 7}, {"run_id": "another"}, {"active": False}])
def test_finding_of_another_attempt_or_run_or_a_resolved_one_is_ignored(fields: dict[str, object]) -> None:
    cluster = Cluster()
    cluster.train(0)
    cluster.find("hung-collective", "node-2", **fields)
    assert cluster.job.phase is Phase.TRAIN


def test_repeated_straggler_finding_gives_one_advice_by_default() -> None:
    cluster = Cluster()
    cluster.train(0)
    cluster.find("compute-straggler", "node-2")
    cluster.find("compute-straggler", "node-2")
    assert cluster.job.phase is Phase.TRAIN
    assert cluster.names.count("advise") == 1


def test_a_straggler_is_replaced_after_a_checkpoint_if_the_policy_acts() -> None:
    cluster = Cluster(act_on=("compute-straggler",), advise_on=())
    cluster.train(0)
    cluster.find("compute-straggler", "node-2")
    assert cluster.job.phase is Phase.SAVE
    cluster.train(1)
    assert "node-2" not in cluster.job.members
    assert cluster.job.num_failures == 0


def test_link_losses_are_tolerated_up_to_the_maximum() -> None:
    cluster = Cluster(max_flaps=2)
    cluster.train(0)
    for _ in range(2):
        cluster.find("nic-flap", "node-1")
    assert cluster.job.phase is Phase.TRAIN
    cluster.find("nic-flap", "node-1")
    assert cluster.job.phase is Phase.SAVE


def test_stall_without_a_finding_restarts_the_job() -> None:
    cluster = Cluster(stall_s=20.0)
    cluster.train(0)
    for name in cluster.job.members:
        node = cluster.nodes[name]
        node.report = replace(node.report, stalled_s=25.0)
    cluster.turn()
    assert "stall" in cluster.names
    cluster.train(1)


def test_stall_after_a_link_loss_is_blamed_on_the_node_of_the_link() -> None:
    cluster = Cluster(stall_s=20.0)
    cluster.train(0)
    cluster.find("nic-flap", "node-1")
    for name in cluster.job.members:
        node = cluster.nodes[name]
        node.report = replace(node.report, stalled_s=25.0)
    cluster.train(1)
    assert [node.name for node in cluster.job.nodes.values() if node.num_faults] == ["node-1"]
    assert "node-1" not in cluster.job.members


def stop_some(cluster: Cluster, seconds: float, *ranks: int) -> None:
    """The second member reports that a signal has stopped these ranks for this time."""
    node = cluster.nodes[cluster.job.members[1]]
    node.report = replace(node.report, stopped_s=dict.fromkeys(ranks, seconds))
    cluster.turn()


def test_node_of_a_rank_stopped_by_a_signal_is_suspected_without_a_finding() -> None:
    cluster = Cluster()
    cluster.train(0)
    name = cluster.job.members[1]
    stop_some(cluster, STOPPED_S - 1, 1)
    assert cluster.job.phase is Phase.TRAIN
    stop_some(cluster, STOPPED_S + 1, 1)
    (decision,) = [decision for decision in cluster.decisions if decision.name == "rank-stopped"]
    assert decision.reason == f"a signal, such as SIGSTOP, has stopped rank 1 on {name}"
    cluster.train(1)
    assert [node.name for node in cluster.job.nodes.values() if node.num_faults] == [name]


def test_job_is_not_restarted_when_signals_stopped_all_ranks() -> None:
    """An operator may pause a job this way."""
    cluster = Cluster(num_nodes=2)
    cluster.train(0)
    for seconds in (1.0, STOPPED_S + 1):
        for name in cluster.job.members:
            node = cluster.nodes[name]
            node.report = replace(node.report, stopped_s=dict.fromkeys(node.report.pids, seconds))
        cluster.turn()
    assert (cluster.job.phase, cluster.job.attempt) == (Phase.TRAIN, 0)


def test_the_driver_gives_up_after_failures_without_progress() -> None:
    cluster = Cluster(max_failures=2)
    for attempt in range(3):
        cluster.train(attempt)
        cluster.end_ranks(cluster.job.members[0], -9)
        cluster.turn()
    cluster.until(Phase.GAVE_UP)
    assert "3 attempts in a row made no progress" in cluster.job.reason


def test_progress_resets_the_count_of_failures() -> None:
    cluster = Cluster(max_failures=1)
    for attempt in range(4):
        cluster.train(attempt)
        cluster.step(10 * attempt)
        cluster.end_ranks(cluster.job.members[0], -9)
        cluster.turn()
    cluster.train(4)


def test_the_driver_waits_for_nodes_and_then_gives_up() -> None:
    cluster = Cluster(num_spares=0, wait_nodes_s=60.0)
    cluster.nodes["node-1"].broken = True
    cluster.until(Phase.GAVE_UP, limit_s=120.0)
    assert cluster.job.reason == "3 of 4 nodes are ready"
    assert "wait" in cluster.names


def test_a_drained_node_leaves_after_a_checkpoint() -> None:
    cluster = Cluster()
    cluster.train(0)
    cluster.ask(Request(action=Action.DRAIN, node="node-1"))
    assert cluster.policy.order("node-0").work is Work.SAVE
    assert cluster.policy.order("node-1").work is Work.SAVE
    cluster.train(1)
    assert cluster.state("node-1") is NodeState.DRAINED
    cluster.ask(Request(action=Action.RESUME, node="node-1"))
    for _ in range(5):
        cluster.turn()
    assert cluster.state("node-1") is NodeState.READY


def test_a_paused_job_continues_when_it_is_resumed() -> None:
    cluster = Cluster()
    cluster.train(0)
    cluster.ask(Request(action=Action.PAUSE))
    cluster.until(Phase.PAUSED)
    cluster.turn()
    assert all(node.report.living == 0 for node in cluster.nodes.values())
    cluster.ask(Request(action=Action.RESUME))
    cluster.train(1)


def test_end_request_saves_a_checkpoint_before_the_job_ends() -> None:
    cluster = Cluster()
    cluster.train(0)
    cluster.ask(Request(action=Action.END))
    assert cluster.policy.order("node-0").work is Work.SAVE
    cluster.until(Phase.ENDED)


@each_case(
    ("request_", "message"),
    [
        (Request(action=Action.DRAIN, node="node-9"), "no node 'node-9'"),
        (Request(action=Action.DRAIN), "drain needs a node"),
        (Request(action=Action.PAUSE, node="node-1"), "pause is for the whole job"),
        (Request(action=Action.RESUME), "the job is not paused"),
        (Request(action=Action.RESUME, node="node-1"), "node node-1 is active"),
    ],
)
def test_invalid_operator_request_is_rejected(request_: Request, message: str) -> None:
    cluster = Cluster()
    cluster.train(0)
    with pytest.raises(UsageError, match=message):
        cluster.ask(request_)
    assert cluster.job.phase is Phase.TRAIN


def test_new_driver_takes_over_without_a_restart_of_the_job() -> None:
    cluster = Cluster()
    cluster.train(0)
    stored = encode(cluster.job)
    cluster.now_s += 300.0
    cluster.policy = Policy(cluster.config, decode(Job, stored))
    cluster.decisions += cluster.policy.take_over(cluster.now_s, NUM_STEPS, started_ns=0)
    for _ in range(10):
        cluster.turn()
    assert (cluster.job.phase, cluster.job.attempt) == (Phase.TRAIN, 0)


@pytest.mark.parametrize(("num_steps", "phase"), [(NUM_STEPS, Phase.DONE), (NUM_STEPS + 1, Phase.TRAIN)])
def test_done_job_continues_only_when_more_steps_are_requested(num_steps: int, phase: Phase) -> None:
    cluster = Cluster()
    cluster.train(0)
    for name in cluster.job.members:
        cluster.end_ranks(name, 0, 0)
    cluster.until(Phase.DONE)
    for node in cluster.nodes.values():
        node.restart_executor()
    cluster.policy = Policy(cluster.config, decode(Job, encode(cluster.job)))
    cluster.decisions = cluster.policy.take_over(cluster.now_s, num_steps, started_ns=1)
    cluster.until(phase)
    assert "executor-lost" not in cluster.names


@pytest.mark.parametrize(("started_ns", "phase"), [(0, Phase.ENDED), (1, Phase.TRAIN)])
def test_ended_job_continues_only_after_a_new_command_starts(started_ns: int, phase: Phase) -> None:
    cluster = Cluster()
    cluster.train(0)
    cluster.ask(Request(action=Action.END))
    cluster.until(Phase.ENDED)
    for node in cluster.nodes.values():
        node.restart_executor()
    cluster.policy = Policy(cluster.config, decode(Job, encode(cluster.job)))
    cluster.decisions += cluster.policy.take_over(cluster.now_s, NUM_STEPS, started_ns=started_ns)
    cluster.until(phase)
    cluster.turn()
    assert cluster.job.phase is phase


@each_case("action", [Action.PAUSE, Action.END, Action.RESUME])
def test_requests_to_a_done_job_are_rejected(action: Action) -> None:
    cluster = Cluster()
    cluster.train(0)
    for name in cluster.job.members:
        cluster.end_ranks(name, 0, 0)
    cluster.until(Phase.DONE)
    with pytest.raises(UsageError, match="the job is over"):
        cluster.ask(Request(action=action))
    assert cluster.job.phase is Phase.DONE


def test_a_job_that_ends_cannot_be_paused() -> None:
    cluster = Cluster()
    cluster.train(0)
    cluster.ask(Request(action=Action.END))
    with pytest.raises(UsageError, match="the job is ending"):
        cluster.ask(Request(action=Action.PAUSE))
    cluster.until(Phase.ENDED)
    assert "pause" not in cluster.names


@pytest.mark.parametrize("restarted", [False, True], ids=["no report for a while", "another executor"])
def test_node_that_was_lost_or_restarted_during_a_check_is_not_blocked(restarted: bool) -> None:
    cluster = Cluster(num_nodes=2, num_spares=0)
    slow, away = cluster.nodes["node-0"], cluster.nodes["node-1"]
    slow.hangs = away.hangs = True
    cluster.turn()
    cluster.turn(CHECK_S - 15.0)
    cluster.turn()
    if restarted:
        away.restart_executor()
    else:
        away.silent = True
        cluster.turn(11.0)
        assert cluster.state("node-1") is NodeState.LOST
        away.silent = False
    slow.hangs = False
    cluster.turn()
    cluster.turn(CHECK_S)
    away.hangs = False
    cluster.train(0)
    assert "block" not in cluster.names


@pytest.mark.parametrize("seed", [*range(12), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(12, 40))])
def test_random_events_never_start_a_blocked_node_or_two_attempts_at_once(seed: int) -> None:
    chance = random.Random(seed)
    network = MadeNetwork() if seed % 2 else None
    cluster = Cluster(num_nodes=3, num_spares=2, network=network, max_failures=10**6, wait_nodes_s=10**6)
    for number in range(400):
        node = cluster.nodes[chance.choice(list(cluster.nodes))]
        match chance.randrange(12):
            case 0 if node.name in cluster.job.members and node.report.living:
                cluster.end_ranks(node.name, chance.choice([-9, 1, 143, -11]))
            case 1:
                node.silent = not node.silent
            case 2:
                node.restart_executor()
            case 3:
                node.broken = chance.random() < 0.2
            case 4 if node.name in cluster.job.nodes:
                action = chance.choice([Action.DRAIN, Action.REPLACE, Action.RESUME])
                with suppress(UsageError):
                    cluster.ask(Request(action=action, node=node.name))
            case 5:
                cluster.find(chance.choice(["hung-collective", "nic-flap", "loss-anomaly"]), node.name)
            case 7 if network is not None:
                network.unplugged = {node.name} if chance.random() < 0.5 else set()
            case 6 if number % 5 == 0:
                stored = encode(cluster.job)
                cluster.policy = Policy(cluster.config, decode(Job, stored))
                cluster.decisions += cluster.policy.take_over(cluster.now_s, NUM_STEPS, started_ns=0)
        cluster.turn(chance.choice([0.1, 0.5, 2.0, 12.0]))
        _check_invariants(cluster)
    if network is not None:
        network.unplugged.clear()
    for node in cluster.nodes.values():
        node.silent = node.broken = False
        if cluster.job.nodes[node.name].state in (NodeState.BLOCKED, NodeState.DRAINED):
            cluster.ask(Request(action=Action.RESUME, node=node.name))
    cluster.until(Phase.TRAIN, limit_s=600.0)


def _check_invariants(cluster: Cluster) -> None:
    job = cluster.job
    orders = {name: cluster.policy.order(name) for name in job.nodes}
    trained = {name for name, order in orders.items() if order.work is Work.TRAIN}
    assert trained <= set(job.members)
    assert all(job.nodes[name].state is NodeState.ACTIVE for name in trained)
    assert len({order.attempt for order in orders.values() if order.work is Work.TRAIN}) <= 1
    assert len({orders[name].position for name in trained}) == len(trained)
