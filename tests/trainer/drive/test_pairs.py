"""The network between nodes in rounds of checks: which nodes are blocked."""

import random
from itertools import combinations

import pytest

from tests.each_case import each_case
from tests.trainer.drive.cluster import Cluster
from tests.trainer.drive.made_network import MadeNetwork
from trainer.drive.job import Job, NodeState, PairedTest, Phase
from trainer.drive.pairs import cut_off_nodes, judge_pairs, next_first
from trainer.drive.policy import Policy
from trainer.drive.records import CheckReport, PairReport, PairRun, Work
from trainer.drive.rounds import PAIRS_S, PEERS_BESIDE
from trainer.json_records import decode, encode

NODES = ("a", "b", "c", "d")


def judged(network: MadeNetwork, *nodes: str) -> list[PairedTest]:
    """All paired tests of a round, completed."""
    tests = list[PairedTest]()
    while (first := next_first(nodes, tests)) is not None:
        order = (first, *(node for node in nodes if node != first))
        number = len(tests) + 1
        verdicts = {node: network.report(node, number, order) for node in nodes}
        tests.append(
            PairedTest(number=number, nodes=order, endpoint="", since_s=0.0, patience_s=1.0, verdicts=verdicts)
        )
    return tests


@each_case("unplugged", NODES)
@each_case("count", [3, 4])
def test_only_the_unplugged_node_is_judged_as_failed(unplugged: str, count: int) -> None:
    nodes = (unplugged, *(node for node in NODES if node != unplugged))[:count]
    for shift in range(count):
        turned = nodes[shift:] + nodes[:shift]
        judgement = judge_pairs(judged(MadeNetwork(unplugged={unplugged}), *turned))
        assert list(judgement.failed) == [unplugged]
        assert judgement.undecided == ()


def test_healthy_network_needs_only_one_paired_test() -> None:
    (test,) = judged(MadeNetwork(), *NODES)
    judgement = judge_pairs([test])
    assert not judgement.failed
    assert not judgement.slow
    assert set(judgement.num_working) == set(NODES)


@each_case("broken", [frozenset(pair) for pair in combinations(NODES, 2)])
def test_single_failed_pair_fails_no_node(broken: frozenset[str]) -> None:
    judgement = judge_pairs(judged(MadeNetwork(broken={broken}), *NODES))
    assert not judgement.failed
    assert judgement.undecided == ()


def test_failed_pairs_of_a_node_whose_test_was_killed_are_ignored() -> None:
    test = PairedTest(number=1, nodes=("a", "b", "c", "d"), endpoint="", since_s=0.0, patience_s=10.0)
    runs = [
        PairRun(members=(first, second), failed=1 in (first, second)) for first, second in combinations(range(4), 2)
    ]
    verdict = PairReport(number=1, runs=tuple(runs))
    test.verdicts = dict.fromkeys("acd", verdict)
    assert list(judge_pairs([test]).failed) == ["b"]
    test.verdicts["b"] = PairReport(number=1, problem="the command was killed by SIGKILL", is_killed=True)
    judgement = judge_pairs([test])
    assert not judgement.failed
    assert judgement.problems == {"b": "the command was killed by SIGKILL"}


def test_failed_pair_of_only_two_nodes_is_undecided() -> None:
    tests = judged(MadeNetwork(unplugged={"b"}), "a", "b")
    assert len(tests) == 1
    assert judge_pairs(tests).undecided == ("a", "b")
    assert not judge_pairs(tests).failed


def test_all_nodes_are_undecided_when_no_pair_works() -> None:
    judgement = judge_pairs(judged(MadeNetwork(unplugged=set(NODES)), *NODES))
    assert judgement.undecided == NODES
    assert not judgement.failed


def test_only_the_slow_node_is_judged_as_slow() -> None:
    judgement = judge_pairs(judged(MadeNetwork(factors={"c": 3.0}), *NODES))
    assert list(judgement.slow) == ["c"]
    assert judgement.slow["c"].startswith("3.0x the usual time or more with every partner")


def test_paired_test_that_its_first_node_cannot_start_fails_no_node() -> None:
    cut_off = PairReport(number=1, problem="no answer", is_cut_off=True)
    verdicts = {"a": PairReport(number=1, problem="status 2: cannot listen"), "b": cut_off, "c": cut_off}
    test = PairedTest(number=1, nodes=("a", "b", "c"), endpoint="", since_s=0.0, patience_s=1.0, verdicts=verdicts)
    judgement = judge_pairs([test])
    assert (judgement.failed, judgement.undecided) == ({}, ())
    assert judgement.problems == {"a": "status 2: cannot listen"}


def test_node_that_starts_the_test_too_late_is_not_undecided() -> None:
    verdict = PairReport(number=1, absent=(2,))
    late = PairReport(number=1, problem="status 2: started too late")
    test = PairedTest(
        number=1,
        nodes=("a", "b", "c"),
        endpoint="",
        since_s=0.0,
        patience_s=10.0,
        verdicts={"a": verdict, "b": verdict, "c": late},
    )
    assert judge_pairs([test]).undecided == ()


def test_timing_noise_marks_no_node_as_failed_or_slow() -> None:
    chance = random.Random(5)
    network = MadeNetwork(jitter=lambda: chance.uniform(0.8, 1.2))
    for _ in range(100):
        judgement = judge_pairs(judged(network, *NODES))
        assert not judgement.failed
        assert not judgement.slow


def test_nodes_of_one_machine_are_not_paired() -> None:
    cluster = Cluster()
    cluster.train(0)
    assert "check-pairs" not in cluster.names


def test_the_node_that_lost_its_network_is_blocked_before_the_first_attempt() -> None:
    cluster = Cluster(network=MadeNetwork(unplugged={"node-2"}))
    cluster.train(0)
    blocked = [node.name for node in cluster.job.nodes.values() if node.state is NodeState.BLOCKED]
    assert blocked == ["node-2"]
    assert cluster.job.nodes["node-2"].reason == "it cannot reach node-0, node-1, node-3, node-4"
    assert cluster.names.count("check-pairs") == 1


def test_a_node_that_answers_but_loses_packets_is_blocked_by_the_paired_tests() -> None:
    cluster = Cluster(network=MadeNetwork(lossy={"node-2"}))
    cluster.train(0)
    blocked = [node.name for node in cluster.job.nodes.values() if node.state is NodeState.BLOCKED]
    assert blocked == ["node-2"]
    assert cluster.job.nodes["node-2"].reason.startswith("no pair with ")
    assert cluster.names.count("check-pairs") == 2


def cut_off(**unreached: str) -> dict[str, str]:
    """Nodes that are cut off. ``d="abc"``: d could not reach a, b and c. Each node tried all others."""
    reports = {
        name: CheckReport(number=1, unreached=tuple(gone), reached=tuple(unreached.keys() - {name, *gone}))
        for name, gone in unreached.items()
    }
    return cut_off_nodes(reports)


def test_no_node_is_cut_off_when_a_firewall_hides_closed_ports() -> None:
    """The firewall hides them in one direction or in all directions."""
    assert cut_off(a="", b="", c="", d="abc") == {}
    assert cut_off(a="d", b="d", c="d", d="") == {}
    assert cut_off(a="bcd", b="acd", c="abd", d="abc") == {}
    assert cut_off(a="b", b="a") == {}
    assert cut_off(a="d", b="d", c="d", d="abc") == {"d": "it cannot reach a, b, c"}


def test_each_node_of_a_large_job_checks_few_peers() -> None:
    cluster = Cluster(num_nodes=40, network=MadeNetwork(unplugged={"node-17"}))
    cluster.turn()
    cluster.turn()
    orders = [cluster.policy.order(name) for name in cluster.nodes]
    assert {len(order.peers) for order in orders if order.work is Work.CHECK} == {2 * PEERS_BESIDE}
    cluster.train(0)
    assert [node.name for node in cluster.job.nodes.values() if node.state is NodeState.BLOCKED] == ["node-17"]


def test_suspect_without_network_is_checked_with_two_other_nodes_and_blocked() -> None:
    network = MadeNetwork()
    cluster = Cluster(num_nodes=3, num_spares=1, network=network)
    cluster.train(0)
    network.unplugged.add("node-1")
    cluster.end_ranks("node-1", -9)
    cluster.train(1)
    assert cluster.state("node-1") is NodeState.BLOCKED
    assert cluster.job.members == ("node-0", "node-3", "node-2")
    (check,) = [decision.reason for decision in cluster.decisions if decision.name == "check"][1:]
    assert len(check.split(", ")) == 3


def test_a_slow_network_blocks_a_node_after_two_rounds() -> None:
    cluster = Cluster(network=MadeNetwork(factors={"node-0": 4.0}))
    cluster.train(0)
    assert cluster.state("node-0") is NodeState.BLOCKED
    assert cluster.names.count("suspect") == 1
    assert "slow in two rounds" in cluster.job.nodes["node-0"].reason


def test_two_nodes_without_a_third_are_not_blocked_and_the_decision_gives_the_reason() -> None:
    cluster = Cluster(num_nodes=2, num_spares=0, network=MadeNetwork(unplugged={"node-1"}))
    cluster.train(0)
    (undecided,) = [decision.reason for decision in cluster.decisions if decision.name == "pairs-undecided"]
    assert undecided.startswith("no pair of node-0, node-1 worked")
    assert NodeState.BLOCKED not in {node.state for node in cluster.job.nodes.values()}


def test_nodes_that_train_get_no_paired_test() -> None:
    network = MadeNetwork()
    cluster = Cluster(num_nodes=3, num_spares=2, network=network)
    cluster.train(0)
    cluster.nodes["node-4"].restart_executor()
    for _ in range(10):
        cluster.turn()
        assert all(cluster.policy.order(name).work is Work.TRAIN for name in cluster.job.members)
    assert cluster.names.count("check-pairs") == 2
    assert cluster.state("node-4") is NodeState.READY


def test_new_driver_continues_a_paired_test() -> None:
    cluster = Cluster(network=MadeNetwork(lossy={"node-3"}))
    while not (cluster.job.round is not None and len(cluster.job.round.tests) == 2):
        cluster.turn()
    cluster.policy = Policy(cluster.config, decode(Job, encode(cluster.job)))
    cluster.decisions += cluster.policy.take_over(cluster.now_s, 100, started_ns=0)
    cluster.until(Phase.TRAIN)
    assert cluster.state("node-3") is NodeState.BLOCKED


def test_paired_test_timeout_does_not_count_the_time_without_a_driver() -> None:
    cluster = Cluster(network=MadeNetwork())
    while cluster.job.round is None or not cluster.job.round.tests:
        cluster.turn()
    cluster.policy = Policy(cluster.config, decode(Job, encode(cluster.job)))
    cluster.now_s += 2 * PAIRS_S
    cluster.decisions += cluster.policy.take_over(cluster.now_s, 100, started_ns=0)
    cluster.decisions += cluster.policy.tick(cluster.now_s + 1.0)
    assert cluster.job.round is not None
    assert len(cluster.job.round.tests) == 1
    cluster.train(0)
    assert "pairs-undecided" not in cluster.names


@pytest.mark.parametrize("index", [0, 1], ids=["first", "other"])
def test_node_lost_during_a_paired_test_does_not_block_the_job(index: int) -> None:
    network = MadeNetwork()
    cluster = Cluster(network=network)
    while cluster.job.round is None or not cluster.job.round.tests:
        cluster.turn()
    lost = cluster.job.round.tests[0].nodes[index]
    network.unplugged.add(lost)
    cluster.nodes[lost].silent = True
    cluster.until(Phase.TRAIN)
    assert cluster.state(lost) is NodeState.LOST
    assert len(cluster.job.in_state(NodeState.ACTIVE)) == cluster.config.num_nodes
    assert "pairs-undecided" not in cluster.names


def test_state_of_the_job_shows_that_a_separated_node_was_replaced() -> None:
    cluster = Cluster()
    cluster.train(0)
    assert not cluster.job.has_replaced("node-1", 0)
    cluster.nodes["node-1"].silent = True
    cluster.until(Phase.STOP)
    assert cluster.job.has_replaced("node-1", 0)
    assert not cluster.job.has_replaced("node-0", 0)
    cluster.train(1)
    assert cluster.job.has_replaced("node-0", 0)
    assert not cluster.job.has_replaced("node-0", 1)
