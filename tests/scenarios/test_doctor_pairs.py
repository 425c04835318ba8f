"""`rankscope doctor --pairs` among real nodes: all nodes name the slowed node, and no other node."""

import random
import signal

import pytest

from tests.deadline import until
from tests.scenarios.command import rankscope
from tests.scenarios.paired_nodes import fleet, mostly_stopped

NODES = 4


@pytest.mark.gloo
@pytest.mark.chaos
@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
def test_all_other_nodes_name_only_the_slowed_node(seed: int) -> None:
    culprit = random.Random(seed).randrange(NODES)
    with fleet(NODES) as nodes, mostly_stopped(nodes[culprit]):
        answers = [node.finish() for index, node in enumerate(nodes) if index != culprit]
    for status, verdict in answers:
        assert status == 1
        assert [bad["node"] for bad in verdict["bad"]] == [culprit]
        assert not verdict["bad"][0]["failed"]


@pytest.mark.gloo
@pytest.mark.chaos
@pytest.mark.long
def test_only_the_killed_node_is_named() -> None:
    with fleet(3, round_s=5) as nodes:
        until(nodes[2].is_connected, seconds=60, what="a node that has come")
        nodes[2].signal(signal.SIGKILL)
        status, verdict = nodes[0].finish()
    assert status == 1
    assert [(bad["node"], bad["failed"]) for bad in verdict["bad"]] == [(2, True)]


@pytest.mark.gloo
@pytest.mark.chaos
@pytest.mark.long
def test_death_of_node_0_is_reported_by_the_other_node_with_status_3() -> None:
    with fleet(2) as nodes:
        until(nodes[1].is_connected, seconds=60, what="a node that has come")
        nodes[0].signal(signal.SIGKILL)
        status, error = nodes[1].fail()
    assert status == 3
    assert "node 0 at 127.0.0.1:" in error
    assert "Traceback" not in error


def test_endpoint_on_which_node_0_cannot_listen_is_rejected() -> None:
    answer = rankscope("doctor", "--pairs", "--rdzv-endpoint", "192.0.2.77:1", "--node-rank", 0, "--nnodes", 3)
    assert answer.status == 2
    assert "cannot listen on 192.0.2.77:1" in answer.error
    assert "hint: node 0 hosts the store" in answer.error
