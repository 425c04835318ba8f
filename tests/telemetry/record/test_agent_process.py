"""The first rank of a host restarts a dead agent, whatever the training does with its child processes."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress

import pytest

from telemetry.record.agent_process import KeptAgent
from tests.deadline import until

HOSTILE_TRAINING = """
import os, signal, sys, threading, time
from contextlib import suppress
from telemetry.record.agent_process import KeptAgent

def reap():
    while True:
        with suppress(ChildProcessError):
            os.waitpid(-1, 0)

if sys.argv[1] == "ignores":
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
else:
    threading.Thread(target=reap, daemon=True).start()
pids = []
def spawn():
    pids.append(os.posix_spawn("/bin/sleep", ["sleep", "60"], os.environ))
    return pids[-1]
kept = KeptAgent(spawn, print, first_pause_s=0.01)
for deaths in range(1, 6):
    os.kill(pids[-1], signal.SIGKILL)
    deadline = time.monotonic() + 30
    while len(pids) <= deaths and time.monotonic() < deadline:
        time.sleep(0.001)
os.kill(pids[-1], signal.SIGKILL)
sys.exit(len(pids) != 6)
"""


class Agents:
    """Starts processes in place of agents. Each one sleeps, or ends at once with a status."""

    def __init__(self) -> None:
        self.pids: list[int] = []
        self.messages: list[str] = []
        self.program = "sleep 60"
        self.spawn_fails = False
        self.kept: list[KeptAgent] = []

    def keep(self, first_pause_s: float) -> KeptAgent:
        self.kept.append(KeptAgent(self.spawn, self.messages.append, first_pause_s=first_pause_s))
        return self.kept[-1]

    def spawn(self) -> int:
        if self.spawn_fails:
            raise OSError("no process can be started")
        self.pids.append(os.posix_spawn("/bin/sh", ["sh", "-c", f"exec {self.program}"], os.environ))
        return self.pids[-1]

    def kill(self) -> None:
        os.kill(self.pids[-1], signal.SIGKILL)


@pytest.fixture
def agents() -> Iterator[Agents]:
    made = Agents()
    yield made
    made.spawn_fails = True
    for kept in made.kept:
        kept.session_ended()
    with suppress(ProcessLookupError):
        made.kill()
    for kept in made.kept:
        kept.thread.join(30)
        assert not kept.thread.is_alive()


def test_an_agent_that_is_killed_is_restarted_after_pauses_that_double(agents: Agents) -> None:
    agents.keep(0.01)
    for deaths in (1, 2, 3):
        agents.kill()
        until(lambda deaths=deaths: len(agents.pids) > deaths, what="another agent")
    assert [words.partition(":")[0] for words in agents.messages] == [
        f"the agent was killed by signal 9 and is restarted in {pause} s" for pause in ("0.01", "0.02", "0.04")
    ]


@pytest.mark.parametrize("status", [0, 2])
def test_agent_that_exits_with_status_0_or_2_is_not_restarted(status: int, agents: Agents) -> None:
    agents.program = f"sh -c 'exit {status}'"
    kept = agents.keep(0.01)
    kept.thread.join(30)
    assert not kept.thread.is_alive()
    assert len(agents.pids) == 1
    assert agents.messages == []


def test_dead_agent_is_restarted_at_once_when_the_session_ends(agents: Agents) -> None:
    kept = agents.keep(3600.0)
    agents.kill()
    until(lambda: agents.messages, what="its death")
    kept.session_ended()
    assert len(agents.pids) == 2


def test_agent_that_exits_with_an_error_after_the_session_is_not_restarted(agents: Agents) -> None:
    agents.program = "sh -c 'read line; exit 3' < /dev/null"
    kept = agents.keep(3600.0)
    kept.session_ended()
    kept.thread.join(30)
    assert not kept.thread.is_alive()


def test_agent_thread_ends_when_the_agent_cannot_be_restarted_after_the_session(agents: Agents) -> None:
    kept = agents.keep(3600.0)
    agents.kill()
    until(lambda: agents.messages, what="its death")
    agents.spawn_fails = True
    kept.session_ended()
    kept.thread.join(10)
    assert not kept.thread.is_alive()


@pytest.mark.parametrize("training", ["reaps every child", "ignores"])
def test_agent_is_restarted_when_the_training_reaps_or_ignores_child_processes(training: str) -> None:
    subprocess.run([sys.executable, "-c", HOSTILE_TRAINING, training], check=True, timeout=60)


def test_training_can_still_read_the_exit_status_of_its_own_child_processes(agents: Agents) -> None:
    agents.keep(0.01)
    with subprocess.Popen(["/bin/sh", "-c", "exit 7"]) as own:
        agents.kill()
        until(lambda: len(agents.pids) == 2, what="another agent")
        assert own.wait() == 7
