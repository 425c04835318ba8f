"""The rendezvous of nodes, and the records that they exchange."""

import socket

import pytest

from diagnose.nodecheck.network import Rendezvous, find_address, interface_named, interface_towards, listen
from diagnose.nodecheck.pairs.coordinator import as_run
from diagnose.nodecheck.pairs.plan import judge
from diagnose.nodecheck.pairs.records import PairedVerdict, PairRun, read_verdict, verdict_object
from telemetry.errors import UsageError
from tests.each_case import each_case
from tests.integration.processes import free_port

RUNS = tuple(
    PairRun(round=round, members=pair, seconds=seconds, own_s=own_s)
    for round, pair, seconds, own_s in [
        (0, (0, 1), 1.0, (0.4, 0.4)),
        (1, (1, 2), 3.0, (0.4, 2.4)),
        (2, (0, 2), 3.1, (0.5, 2.5)),
    ]
)


def verdict_of(*runs: PairRun) -> PairedVerdict:
    return PairedVerdict(hosts=("a", "b", "c"), runs=runs, judgement=judge(range(3), runs))


@each_case(
    ("endpoint", "index", "nodes"),
    [("node0", 0, 2), ("node0:", 0, 2), (":29500", 0, 2), ("node0:99999", 0, 2), ("node0:1", 2, 2), ("node0:1", 0, 1)],
)
def test_invalid_rendezvous_is_rejected(endpoint: str, index: int, nodes: int) -> None:
    with pytest.raises(UsageError):
        Rendezvous(endpoint=endpoint, index=index, nodes=nodes)


def test_ipv6_endpoint_is_split_into_host_and_port() -> None:
    rendezvous = Rendezvous(endpoint="[fd00::2]:29500", index=0, nodes=2)
    assert (rendezvous.host, rendezvous.port) == ("fd00::2", 29500)


def test_node_0_raises_a_usage_error_when_it_cannot_listen_on_the_endpoint() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"cannot listen on 127.0.0.1:{port}"):
            find_address(Rendezvous(endpoint=f"127.0.0.1:{port}", index=0, nodes=2))
    with pytest.raises(UsageError, match=r"cannot listen on 192\.0\.2\.77:1"):
        find_address(Rendezvous(endpoint="192.0.2.77:1", index=0, nodes=2))
    rendezvous = Rendezvous(endpoint=f"127.0.0.1:{free_port()}", index=0, nodes=2)
    find_address(rendezvous)
    listen(rendezvous).close()


def test_interface_towards_the_loopback_address_is_lo() -> None:
    assert interface_towards("127.0.0.1") == "lo"
    assert interface_named("lo").address == "127.0.0.1"


def test_paired_verdict_is_unchanged_after_writing_and_reading() -> None:
    failed = PairRun(round=2, members=(0, 2), seconds=None, reason="node 2: did not answer")
    for verdict in (verdict_of(*RUNS), verdict_of(*RUNS[:2], failed)):
        assert read_verdict(verdict_object(verdict)) == verdict


def test_time_of_a_pair_is_the_time_of_its_slower_node() -> None:
    shares = [{"seconds": 1.0, "own_s": 0.5, "reason": ""}, {"seconds": 1.2, "own_s": 0.7, "reason": ""}]
    run = as_run(1, (3, 5), shares)
    assert (run.seconds, run.own_s) == (1.2, (0.5, 0.7))


def test_pair_fails_when_a_node_does_not_answer() -> None:
    run = as_run(0, (3, 5), [{"seconds": None, "own_s": 0.0, "reason": "did not finish in 5 s"}, None])
    assert (run.seconds, run.reason) == (None, "node 3: did not finish in 5 s; node 5: did not answer")


def test_cause_distinguishes_slow_compute_of_a_node_from_its_slow_network() -> None:
    verdict = verdict_of(*RUNS)
    assert "took 6.0x as long" in verdict.cause_of(verdict.judgement.bad[0])
    even = verdict_of(
        *(PairRun(round=run.round, members=run.members, seconds=run.seconds, own_s=(0.4, 0.4)) for run in RUNS)
    )
    assert "as fast as on other nodes" in even.cause_of(even.judgement.bad[0])


def test_cause_of_a_failing_node_is_its_last_failure_reason() -> None:
    failed = [
        PairRun(round=1, members=(1, 2), seconds=None, reason="x"),
        PairRun(round=2, members=(0, 2), seconds=None, reason="y"),
    ]
    verdict = verdict_of(RUNS[0], *failed)
    assert [(bad.node, bad.failed) for bad in verdict.judgement.bad] == [(2, True)]
    assert verdict.cause_of(verdict.judgement.bad[0]) == "y"
