"""Network namespaces act as hosts. Links go down and come back, and nothing is left behind."""

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.deadline import until
from tests.netns.cluster import NAMESPACES, Cluster, sweep
from tests.parts import require, require_root
from tests.trainer.jobs import alive

pytestmark = [pytest.mark.netns, pytest.mark.timeout(60)]

PORT = 5000
REACHED_S, UNREACHED_S = 10.0, 0.5
RATE, RATE_BYTES_PER_S, BURST_BYTES = "4mbit", 500_000, 32 * 1024
NUM_BYTES = 150_000
HOLDS_ON = """
import subprocess, time
from tests.netns.cluster import Cluster
with Cluster(2) as cluster:
    sleeper = cluster.run_in(1, ["sh", "-c", "echo; exec sleep 600"], stdout=subprocess.PIPE)
    sleeper.stdout.readline()  # it runs on its host
    print(sleeper.pid, *cluster.namespaces, flush=True)
    time.sleep(600)
"""


@pytest.fixture(scope="module", autouse=True)
def _parts() -> None:
    require_root("makes network namespaces")
    require("ip")
    require("tc")


@pytest.fixture(scope="module")
def cluster(_parts: None) -> Iterator[Cluster]:
    with Cluster(3) as made:
        yield made


@pytest.fixture
def listener(cluster: Cluster) -> Iterator[socket.socket]:
    """A listening socket on host 1."""
    with cluster.inside(1):
        made = socket.create_server((cluster.data_address(1), PORT))
    with made:
        yield made


def connected(cluster: Cluster, host: int, seconds: float) -> socket.socket:
    """A connection from a host to the listener on host 1."""
    with cluster.inside(host):
        return socket.create_connection((cluster.data_address(1), PORT), timeout=seconds)


def reaches(cluster: Cluster, host: int, seconds: float) -> bool:
    with suppress(OSError):
        connected(cluster, host, seconds).close()
        return True
    return False


def test_kernel_counts_every_link_that_goes_down(cluster: Cluster) -> None:
    before = [cluster.carrier_downs(host) for host in cluster.hosts]
    for _ in range(5):
        cluster.link_down(2)
        cluster.link_up(2)
    assert [cluster.carrier_downs(host) - before[host] for host in cluster.hosts] == [0, 0, 5]


@pytest.mark.usefixtures("listener")
def test_host_is_unreachable_while_its_link_is_down(cluster: Cluster) -> None:
    assert reaches(cluster, 0, REACHED_S)
    cluster.link_down(1)
    try:
        assert not reaches(cluster, 0, UNREACHED_S)
    finally:
        cluster.link_up(1)
    assert reaches(cluster, 0, REACHED_S)


@pytest.mark.usefixtures("listener")
def test_processes_of_one_host_can_connect_while_its_link_is_down(cluster: Cluster) -> None:
    cluster.link_down(1)
    try:
        assert reaches(cluster, 1, REACHED_S)
    finally:
        cluster.link_up(1)


def test_host_shows_only_its_own_links(cluster: Cluster) -> None:
    process = cluster.run_in(0, ["ls", "/sys/class/net"], stdout=subprocess.PIPE)
    names = process.communicate(timeout=REACHED_S)[0].decode().split()
    assert {"lo", "data0", "mgmt0"} <= set(names)
    assert "d0" not in names, "a port of the switch"


@pytest.mark.parametrize("slowed", [0, 1], ids=["sender", "receiver"])
def test_slowed_link_limits_the_rate_in_both_directions(slowed: int, cluster: Cluster, listener: socket.socket) -> None:
    cluster.slow(slowed, RATE)
    try:
        began = time.monotonic()
        with connected(cluster, 0, REACHED_S) as sender, listener.accept()[0] as receiver:
            sender.sendall(bytes(NUM_BYTES))
            assert len(receiver.recv(NUM_BYTES, socket.MSG_WAITALL)) == NUM_BYTES
        # The shortest possible time: a link can only be slower than its rate.
        assert time.monotonic() - began >= (NUM_BYTES - BURST_BYTES) / RATE_BYTES_PER_S
    finally:
        cluster.unslow(slowed)


def test_unslow_removes_the_rate_limit_of_a_link(cluster: Cluster) -> None:
    cluster.slow(0, RATE)
    assert "tbf" in shown(cluster)
    cluster.unslow(0)
    assert "tbf" not in shown(cluster)
    cluster.unslow(0)


def shown(cluster: Cluster) -> str:
    """Queueing disciplines of host 0."""
    process = cluster.run_in(0, [require("tc"), "qdisc", "show"], stdout=subprocess.PIPE)
    return process.communicate(timeout=REACHED_S)[0].decode()


def test_cluster_is_removed_with_its_processes_after_an_error(tmp_path: Path) -> None:
    cluster, note = Cluster(2), tmp_path / "pid"

    def fail_in_it() -> None:
        with cluster:
            cluster.run_in(1, ["sh", "-c", f"sleep 600 & echo $! > {note}; wait"])
            until(lambda: note.exists() and note.read_text().endswith("\n"), what="a grandchild")
            assert alive(int(note.read_text()))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_in_it()
    assert not any((NAMESPACES / name).exists() for name in cluster.namespaces)
    until(lambda: not alive(int(note.read_text())), what="the end of all that ran there")


def test_sigterm_removes_the_cluster_and_its_processes() -> None:
    pid, names, sleeper = held_by_another(signal.SIGTERM)
    assert not alive(pid)
    assert not any((NAMESPACES / name).exists() for name in names)
    assert not alive(sleeper)


def test_sweep_removes_the_cluster_of_a_killed_process() -> None:
    _, names, sleeper = held_by_another(signal.SIGKILL)
    assert all((NAMESPACES / name).exists() for name in names)
    sweep()
    assert not any((NAMESPACES / name).exists() for name in names)
    until(lambda: not alive(sleeper), what="the end of what ran there")


def test_sweep_keeps_a_cluster_that_is_in_use(cluster: Cluster) -> None:
    sweep()
    assert all((NAMESPACES / name).exists() for name in cluster.namespaces)


def held_by_another(end: signal.Signals) -> tuple[int, list[str], int]:
    """A process that held a cluster and was ended: its pid, the namespaces, and the pid of a program on a host."""
    with subprocess.Popen([sys.executable, "-c", HOLDS_ON], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        sleeper, *names = holder.stdout.readline().split()
        assert len(names) == 3
        holder.send_signal(end)
        holder.wait(30)
    return holder.pid, names, int(sleeper)
