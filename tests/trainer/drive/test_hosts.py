"""A driven job over hosts with a network between them."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deadline import until
from tests.netns.cluster import COLLECTOR_ADDRESS, SWITCH, Cluster
from tests.trainer.drive.driven import COMMAND, PATIENCE_S, TINY, DrivenJob, decisions_of
from tests.trainer.drive.test_drive import undisturbed_losses
from trainer.drive.folder import STATE

pytestmark = [pytest.mark.netns, pytest.mark.long, pytest.mark.timeout(900)]
NUM_STEPS = 30
HOSTS = 3


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(HOSTS) as found:
        yield found


def test_job_on_several_hosts_replaces_a_killed_node_and_keeps_its_losses(cluster: Cluster, tmp_path: Path) -> None:
    out = tmp_path / "job"
    out.mkdir()
    options = ("--nodes", "2", "--spares", "1", "--no-own-collector", "--no-checks", "--steps", str(NUM_STEPS))
    with (out / "command.log").open("wb") as log:
        command = [*COMMAND, *TINY, *options, "--listen", COLLECTOR_ADDRESS, "--out", out]
        driver = cluster.run_in(SWITCH, command, stderr=log)
        until(lambda: (out / "drive" / STATE).exists(), seconds=PATIENCE_S, what="the driver")
        nodes = [
            cluster.run_in(
                host,
                [*COMMAND, "node", f"node-{host}", "--address", cluster.data_address(host), "--out", out],
                stderr=log,
            )
            for host in cluster.hosts
        ]
        job = DrivenJob(out, ())
        job.wait_for_attempt(0)
        assert job.state.rendezvous.startswith("tcp://10.78.0.")
        nodes[int(job.state.members[1].removeprefix("node-"))].send_signal(signal.SIGKILL)
        job.wait_for_attempt(1)
        assert driver.wait(timeout=PATIENCE_S) == 0, job.words
        left = [node.wait(timeout=PATIENCE_S) for node in nodes]
    assert sorted(left) == [-signal.SIGKILL, 0, 0], job.words
    assert "node-lost" in decisions_of(out)
    assert job.losses() == undisturbed_losses(tmp_path / "undisturbed", NUM_STEPS)
