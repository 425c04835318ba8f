"""`rankscope doctor --pairs` among real nodes: the one that is held up is named by all of them, and nobody else."""

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
def test_the_slowed_node_is_named_and_nobody_else(seed: int) -> None:
    culprit = random.Random(seed).randrange(NODES)
    with fleet(NODES) as nodes, mostly_stopped(nodes[culprit]):
        answers = [node.finish() for index, node in enumerate(nodes) if index != culprit]
    for status, told in answers:
        assert status == 1
        assert [bad["node"] for bad in told["bad"]] == [culprit]
        assert not told["bad"][0]["failed"]


@pytest.mark.gloo
@pytest.mark.chaos
@pytest.mark.long
def test_a_node_that_dies_is_named_and_a_healthy_one_is_not() -> None:
    with fleet(3, round_s=5) as nodes:
        until(nodes[2].has_come, seconds=60, what="a node that has come")
        nodes[2].signal(signal.SIGKILL)
        status, told = nodes[0].finish()
    assert status == 1
    assert [(bad["node"], bad["failed"]) for bad in told["bad"]] == [(2, True)]


@pytest.mark.gloo
@pytest.mark.chaos
@pytest.mark.long
def test_when_node_0_dies_the_others_say_so_instead_of_waiting() -> None:
    with fleet(2) as nodes:
        until(nodes[1].has_come, seconds=60, what="a node that has come")
        nodes[0].signal(signal.SIGKILL)
        status, error = nodes[1].fail()
    assert status == 3
    assert "node 0 at 127.0.0.1:" in error
    assert "Traceback" not in error


def test_an_endpoint_that_is_not_node_0s_is_refused() -> None:
    answer = rankscope("doctor", "--pairs", "--rdzv-endpoint", "192.0.2.77:1", "--node-rank", 0, "--nnodes", 3)
    assert answer.status == 2
    assert "cannot listen on 192.0.2.77:1" in answer.error
    assert "hint: node 0 hosts the store" in answer.error
