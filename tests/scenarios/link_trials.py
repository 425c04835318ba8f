"""Driven jobs whose nodes have links that go down: nodes in network namespaces, for ``drive_trials.py``.

    node-0 .. node-3     data0: ranks and paired tests      mgmt0: the driver, which is beside the switch

link down         both links of a node, for good    the node is lost, its ranks end, a spare replaces it
link flaps        both links, for three seconds     the job continues or restarts
data link down    only data0, for good              no progress; the paired tests block the node
"""

import random
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from telemetry.process.child_process import birth_of
from tests.deadline import until
from tests.netns.cluster import COLLECTOR_ADDRESS, SWITCH, Cluster
from tests.trainer.drive.driven import COMMAND, TINY, DrivenJob
from trainer.checkpoint.folder import complete_steps, read_about
from trainer.drive.folder import STATE
from trainer.drive.job import NodeState

LINK_DOWN, LINK_FLAPS, DATA_LINK_DOWN = "link down", "link flaps", "data link down"
NUM_HOSTS, NUM_STEPS = 4, 80
FLAP_S = 3.0
LONGEST_S = 300.0
STALL_S = "5"
LATE = 2
"""Steps that may still be done, and their checkpoints completed, while the link goes down."""


@dataclass(slots=True, kw_only=True)
class HostedJob(DrivenJob):
    """A driven job over hosts."""

    cluster: Cluster
    nodes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    """Their executors."""
    unplugged: str = ""
    """The node whose link went down."""
    newest: int = -1
    """The newest step at that time."""
    separated: list[tuple[int, str]] = field(default_factory=list)
    """Its ranks: pid and birth."""

    def finish(self) -> int:
        """Wait for the end of the driver and of all nodes; the first exit status that is not 0."""
        assert self.process is not None
        statuses = [process.wait(timeout=LONGEST_S) for process in (self.process, *self.nodes)]
        return next(filter(None, statuses), 0)

    @property
    def unplugged_host(self) -> int:
        return int(self.unplugged.removeprefix("node-"))


@contextmanager
def hosted_job(out: Path) -> Iterator[HostedJob]:
    """A driven job with two nodes and two spares, started. Everything that it started ends with the block."""
    out.mkdir(parents=True, exist_ok=True)
    options = ("--nodes", "2", "--spares", "2", "--no-own-collector", "--stall", STALL_S, "--steps", str(NUM_STEPS))
    with Cluster(NUM_HOSTS) as cluster, (out / "command.log").open("wb") as log:
        job = HostedJob(out, (), cluster=cluster)
        command = [*COMMAND, *TINY, *options, "--listen", COLLECTOR_ADDRESS, "--out", out]
        job.process = cluster.run_in(SWITCH, command, stderr=log)
        until(lambda: (out / "drive" / STATE).exists(), seconds=LONGEST_S, what="a driver")
        for host in cluster.hosts:
            place = ("--address", cluster.data_address(host), "--out", out)
            job.nodes.append(cluster.run_in(host, [*COMMAND, "node", f"node-{host}", *place], stderr=log))
        yield job


def pull_link(job: DrivenJob, chance: random.Random) -> None:
    hosted = _with_chosen_node(job, chance)
    hosted.cluster.unplug(hosted.unplugged_host)


def flap_link(job: DrivenJob, chance: random.Random) -> None:
    hosted = _with_chosen_node(job, chance)
    hosted.cluster.unplug(hosted.unplugged_host)
    time.sleep(FLAP_S)
    hosted.cluster.plug(hosted.unplugged_host)


def pull_data_link(job: DrivenJob, chance: random.Random) -> None:
    hosted = _with_chosen_node(job, chance)
    hosted.cluster.link_down(hosted.unplugged_host)


def _hosted(job: DrivenJob) -> HostedJob:
    assert isinstance(job, HostedJob)
    return job


def _with_chosen_node(job: DrivenJob, chance: random.Random) -> HostedJob:
    hosted, state = _hosted(job), job.state
    hosted.unplugged = chance.choice(state.members)
    hosted.newest = max(job.losses())
    for node in state.nodes:
        job.executor(node)
    pid = job.ranks()[state.members.index(hosted.unplugged)]  # a node has one rank
    hosted.separated = [(pid, birth_of(pid))]
    return hosted


def return_link(job: DrivenJob) -> None:
    """Check that the separated node ended its ranks without another checkpoint. Then return its link: it gets ready."""
    hosted = _hosted(job)
    until(
        lambda: not any(birth_of(pid) == born for pid, born in hosted.separated),
        seconds=30.0,
        what="the end of the separated ranks",
    )
    folder = job.out / "checkpoints"
    late = [
        step for step in complete_steps(folder) if step > hosted.newest + LATE and not read_about(folder, step).attempt
    ]
    assert not late, f"checkpoints {late} are of attempt 0, which was separated at step {hosted.newest}"
    hosted.cluster.plug(hosted.unplugged_host)
    _wait_until_ready(hosted)


def return_data_link(job: DrivenJob) -> None:
    """Check that only the node without a network is blocked. Then return its link, and resume the node."""
    hosted = _hosted(job)
    blocked = [node.name for node in job.state.nodes.values() if node.state is NodeState.BLOCKED]
    assert blocked == [hosted.unplugged], f"{blocked} are blocked; {job.words[-2000:]}"
    hosted.cluster.link_up(hosted.unplugged_host)
    resume = [*COMMAND, "resume", hosted.unplugged, "--out", job.out]
    assert hosted.cluster.run_in(SWITCH, resume).wait(timeout=LONGEST_S) == 0
    _wait_until_ready(hosted)


def _wait_until_ready(job: HostedJob) -> None:
    until(
        lambda: job.state.nodes[job.unplugged].state is NodeState.READY,
        seconds=LONGEST_S,
        what=f"the return of {job.unplugged}; {job.words[-2000:]}",
    )


FAULTS: dict[str, Callable[[DrivenJob, random.Random], None]] = {
    LINK_DOWN: pull_link,
    LINK_FLAPS: flap_link,
    DATA_LINK_DOWN: pull_data_link,
}
AFTERWARDS: dict[str, Callable[[DrivenJob], None]] = {LINK_DOWN: return_link, DATA_LINK_DOWN: return_data_link}
