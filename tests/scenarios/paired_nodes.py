"""Nodes of the paired test as process groups on one machine. A test can slow, stop or kill a node.

node i = rankscope doctor --pairs ... + its member process + what that forks, in a session of its own
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from threading import Event, Thread
from typing import Any

import psutil

from tests.deadline import until
from tests.integration.processes import free_port

STOPPED_S, CONTINUED_S = 0.27, 0.03
ROUND_S = 30
TEST_S = 240.0


class Node:
    """One node of the test."""

    def __init__(self, index: int, nodes: int, port: int, round_s: int = ROUND_S) -> None:
        where = ["--rdzv-endpoint", f"127.0.0.1:{port}", "--node-rank", str(index), "--nnodes", str(nodes)]
        self._port = port
        self._process = subprocess.Popen(
            [sys.executable, "-m", "ui.cli", "doctor", "--pairs", *where, "--seconds", str(round_s), "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def is_connected(self) -> bool:
        """Whether it is connected to the store."""
        with suppress(psutil.Error):
            for process in psutil.Process(self.pid).children(recursive=True):
                if any(one.raddr and one.raddr.port == self._port for one in process.net_connections("tcp")):
                    return True
        return self._process.poll() is not None

    def signal(self, number: int) -> None:
        """Send a signal to all its processes."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def finish(self) -> tuple[int, dict[str, Any]]:
        """Exit status and verdict."""
        out, error = self._process.communicate(timeout=TEST_S)
        assert out, error
        return self._process.returncode, json.loads(out)

    def fail(self) -> tuple[int, str]:
        """Exit status and error."""
        out, error = self._process.communicate(timeout=TEST_S)
        assert not out, out
        return self._process.returncode, error

    def end(self) -> None:
        self.signal(signal.SIGKILL)
        self._process.communicate()


@contextmanager
def fleet(nodes: int, *, round_s: int = ROUND_S) -> Iterator[list[Node]]:
    """All nodes of a test. They are killed on exit."""
    port = free_port()
    with ExitStack() as stack:
        members = []
        for index in range(nodes):
            members.append(Node(index, nodes, port, round_s))
            stack.callback(members[-1].end)
        yield members


@contextmanager
def mostly_stopped(node: Node) -> Iterator[None]:
    """Let a node run only a tenth of the time, after it has connected."""
    until(node.is_connected, seconds=60, what="a node that has come")
    over = Event()

    def disturb() -> None:
        while not over.is_set():
            node.signal(signal.SIGSTOP)
            over.wait(STOPPED_S)
            node.signal(signal.SIGCONT)
            over.wait(CONTINUED_S)

    thread = Thread(target=disturb)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


if __name__ == "__main__":
    culprit = int(sys.argv[1])
    with fleet(4) as trial, mostly_stopped(trial[culprit]) if culprit >= 0 else ExitStack():
        status, verdict = trial[(culprit + 1) % 4].finish()
    print(
        status,
        [(bad["node"], bad["ratio"], bad["cause"]) for bad in verdict["bad"]],
        verdict["undecided"],
        verdict["rounds"],
    )
    print([(one["members"], round(one["seconds"] or -1, 3)) for one in verdict["runs"]], verdict["usual_s"])
