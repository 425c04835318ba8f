"""Ranks, agent and collector as real processes. Each can be killed at any moment and started again."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from telemetry.wire.client import CollectorClient
from tests.deadline import until
from tests.forkserver import Program

COLLECT = """
import sys
from telemetry.collector.server import run_collector
from telemetry.collector.settings import CollectorSettings
run_collector(CollectorSettings.checked(store=sys.argv[1], port=int(sys.argv[2])))
"""


class Part:
    """A process of ``command`` that can be started many times.

    A Python program is forked from a process that has already imported it, because that starts faster. With
    ``forks=False`` it is a process with its own command line and without shared memory.
    """

    def __init__(self, name: str, command: list[str], log: Path, *, forks: bool = True) -> None:
        self.name = name
        self._command = command
        self._log = log
        self._forks = forks and command[0] == sys.executable
        self._process: subprocess.Popen[bytes] | Program | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        assert not self.running, self.name
        if self._forks:
            self._process = Program(self._command[1:], self._log)
            return
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def kill(self) -> None:
        """Send SIGKILL and wait. The process cannot clean up."""
        if self._process:
            self._process.kill()
            self._process.wait()

    def end(self, seconds: float = 30) -> int:
        """Send SIGTERM. Return the exit status."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(seconds)

    def wait(self, seconds: float) -> int:
        """Wait until the process ends by itself. Return its exit status."""
        assert self._process is not None
        return self._process.wait(seconds)

    def said(self) -> str:
        return self._log.read_text()


class Road:
    """Ranks, an agent and a collector, all in one folder."""

    def __init__(
        self, folder: Path, store: str, *, num_ranks: int, num_steps: int | None = None, forks: bool = True
    ) -> None:
        self.spool = folder / "spool"
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        python = sys.executable
        steps = [] if num_steps is None else [str(num_steps)]

        def part(name: str, *arguments: str) -> Part:
            return Part(name, [python, *arguments], folder / f"{name}.log", forks=forks)

        self.collector = part("collector", "-c", COLLECT, store, str(self._port))
        self.agent = part(
            "agent", "-m", "telemetry.agent", "--spool", str(self.spool), "--collector", self.url,
            "--interval", "0.1", "--patience", "3",
        )  # fmt: skip
        self.ranks = [
            part(f"rank-{rank}", "-m", "tests.integration.writer", str(self.spool), str(rank), str(num_ranks), *steps)
            for rank in range(num_ranks)
        ]

    @property
    def parts(self) -> list[Part]:
        return [self.collector, self.agent, *self.ranks]

    def start(self) -> None:
        self.start_collector()
        for rank in self.ranks:
            rank.start()
        until(lambda: all(self._recording(number) for number in range(len(self.ranks))), what="ranks that record")
        self.agent.start()

    def start_collector(self) -> None:
        self.collector.start()
        with CollectorClient(self.url) as client:
            until(lambda: client.healthy() or not self.collector.running, what="the collector")
        assert self.collector.running, self.collector.said()

    def _recording(self, rank: int) -> bool:
        return any(self.spool.glob(f"*/*/rank-{rank:05d}/*.rec"))


@contextmanager
def road(
    folder: Path, store: str, *, num_ranks: int, num_steps: int | None = None, forks: bool = True
) -> Iterator[Road]:
    """All processes, started. They are killed at the end if they still run."""
    made = Road(folder, store, num_ranks=num_ranks, num_steps=num_steps, forks=forks)
    with ExitStack() as cleanup:
        for part in made.parts:
            cleanup.callback(part.kill)
        made.start()
        yield made


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def is_open(port: int) -> bool:
    """Whether a process listens on a port of loopback. Costs less than a request, to wait for the start of a server."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
