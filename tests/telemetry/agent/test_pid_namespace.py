"""Ranks and agent in different PID namespaces, as in pods of Kubernetes. The namespaces are real."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from telemetry.agent.host import HIDDEN, Host
from telemetry.evidence.rank_state import is_alive, is_hidden, live_state
from telemetry.evidence.stacks import py_spy, take_stack
from telemetry.process import pid_namespace
from telemetry.process.pid_namespace import NAMESPACE, local_pid, namespace_of, pid_of
from telemetry.record.reader import RankReader, find_rank_dirs
from tests.deadline import until

POD = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
RANK = """
import os, sys, telemetry
assert telemetry.start("run", spool=sys.argv[1], rank=0, agent=False, device="cpu").recording
print(os.getpid(), flush=True)
sys.stdin.read()
"""
AGENT = """
import json, sys
from pathlib import Path
from telemetry.agent.host import Host
from telemetry.evidence.rank_state import is_hidden, live_state
from telemetry.process.pid_namespace import pid_of
from telemetry.evidence.stacks import take_stack
host = Host(Path(sys.argv[1]))
for line in sys.stdin:
    host.find_ranks()
    host.find_ranks()
    (rank,) = host.ranks.values()
    identity = rank.tail.identity
    ((row,),) = host.beats().values()
    state = live_state(rank.tail.reader, identity)[1]
    stack = take_stack(identity, rank.tail.reader.folder)
    print(json.dumps([row["alive"], rank.over, state, is_hidden(identity), pid_of(identity), stack]), flush=True)
"""


def can_unshare() -> bool:
    if os.geteuid() or shutil.which("unshare") is None:
        return False
    return subprocess.run([*POD, "true"], capture_output=True, check=False).returncode == 0


pytestmark = pytest.mark.skipif(not can_unshare(), reason="new PID namespaces need root and unshare")


class Pod:
    """A Python program in a new PID namespace, where it is process 1."""

    def __init__(self, program: str, spool: Path) -> None:
        self.process = subprocess.Popen(
            [*POD, sys.executable, "-c", program, str(spool)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def line(self) -> str:
        assert self.process.stdout is not None
        found = self.process.stdout.readline()
        assert found, self.process.communicate()[1]
        return found

    def ask(self) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return json.loads(self.line())

    def end(self) -> str:
        """Close its input, so that the program ends. Return what it printed to stderr."""
        return self.process.communicate(timeout=60)[1]

    def kill(self) -> None:
        """Kill the program before its input ends, so that it does not end by itself."""
        self.process.kill()
        self.process.wait()  # the kernel has sent SIGKILL to the program, too
        self.process.communicate()


@pytest.fixture
def rank(tmp_path: Path) -> Iterator[Pod]:
    pod = Pod(RANK, tmp_path)
    assert pod.line().strip() == "1"
    yield pod
    pod.kill()


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Pod]:
    pod = Pod(AGENT, tmp_path)
    yield pod
    pod.kill()


def test_an_agent_in_another_namespace_reports_a_rank_as_dead_only_after_its_end(rank: Pod, agent: Pod) -> None:
    """The rank has PID 1 in its own namespace. PID 1 in the agent's namespace is the agent."""
    assert agent.ask() == [1, False, "alive", True, 0, None]
    assert agent.ask() == [1, False, "alive", True, 0, None]
    rank.kill()
    until(lambda: agent.ask() == [0, True, "dead", True, 0, None], what="the rank counts as dead")
    printed = agent.end().splitlines()
    assert [line for line in printed if "namespace" in line] == [HIDDEN]
    assert "hostPID: true" in HIDDEN


def test_agent_in_an_outer_namespace_sees_the_process_of_the_rank(
    rank: Pod, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder,) = find_rank_dirs(tmp_path)
    reader = RankReader(folder)
    identity = reader.identity()
    assert (identity.pid, is_hidden(identity)) == (1, False)
    pid = pid_of(identity)
    assert namespace_of(pid) == identity.meta[NAMESPACE] != namespace_of()
    os.kill(pid, signal.SIGSTOP)
    until(lambda: live_state(reader, identity)[1] == "stopped", what="the rank is stopped")
    if py_spy():
        until(lambda: "<module> (" in (take_stack(identity, folder) or ""), what="py-spy reads its stack")
    host = Host(tmp_path)
    host.find_ranks()
    os.kill(pid, signal.SIGKILL)
    until(lambda: not is_alive(identity, folder), what="the rank is dead")
    assert live_state(reader, identity)[1] == "dead"
    assert capsys.readouterr().err == ""


def test_restarted_container_with_the_same_pid_is_detected_as_another_process(rank: Pod, tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.find_ranks()
    ((folder, followed),) = host.ranks.items()
    assert not followed.began_again()
    rank.kill()
    again = Pod(RANK, tmp_path)
    assert again.line().strip() == "1"
    assert followed.began_again()
    assert is_alive(RankReader(folder).identity(), folder)
    again.kill()


def test_many_unknown_pids_cause_only_one_scan_of_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    searches: list[int] = []
    monkeypatch.setattr(pid_namespace, "_scan", lambda: searches.append(1) or iter(()))
    monkeypatch.setattr(pid_namespace, "_missed", {})
    monkeypatch.setattr(pid_namespace, "_searched_s", -60.0)
    monkeypatch.setattr(pid_namespace, "REUSE_S", 60.0)
    assert [local_pid(number, "another namespace") for number in range(100)] == [0] * 100
    assert len(searches) == 1
