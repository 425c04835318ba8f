"""A real driven job: the command with its driver, executors and ranks."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from telemetry.errors import RankscopeError
from telemetry.process.child_process import birth_of
from telemetry.record.reader import RankReader, find_rank_dirs
from tests.deadline import until
from tests.trainer.drive.paced import start_paced
from tests.trainer.jobs import figures
from tests.trainer.launchers import Launched
from trainer.drive.folder import DRIVER, STATE, DriverPlace, JobFolder
from trainer.drive.job import Job, Phase

COMMAND = (sys.executable, "-P", "-m", "ui.cli", "drive")
TINY = ("--dp", "2", "--pp", "1", "--tp", "1", "--microbatches", "2", "--checkpoint-every", "1")
PATIENCE_S = 200.0
STOPPED_S, CONTINUED_S = 0.03, 0.01
"""Shorter than a repetition of a check."""


@dataclass(slots=True)
class DrivenJob:
    """The command, and what it started."""

    out: Path
    options: tuple[str, ...]
    is_paced: bool = False
    """Whether its ranks use little processor time, see ``paced.py``."""
    process: subprocess.Popen[Any] | Launched | None = None
    born: dict[int, str] = field(default_factory=dict)
    """Every process that was seen: pid -> birth."""

    def start(self) -> None:
        """Start the command, also a second time."""
        self.out.mkdir(parents=True, exist_ok=True)
        log, words = self.out / "command.log", ("--out", str(self.out), *self.options)
        if self.is_paced:
            self.process = start_paced("drive", *words, log=log, unpaced=self._unpaced)
            return
        with log.open("a") as output:
            self.process = subprocess.Popen(
                [*COMMAND, *words], stderr=output, text=True, env=with_tests(), start_new_session=True
            )

    def stop_pacing(self) -> None:
        """Let the ranks do the other steps as fast as they can."""
        self._unpaced.touch()

    @property
    def _unpaced(self) -> Path:
        return self.out / "unpaced"

    @property
    def state(self) -> Job:
        found = JobFolder(self.out).read(STATE, Job)
        assert found is not None
        return found

    def finish(self) -> int:
        """Wait for the end of the command; its exit status."""
        assert self.process is not None
        return self.process.wait(timeout=PATIENCE_S)

    @property
    def words(self) -> str:
        """What the command wrote to stderr."""
        return (self.out / "command.log").read_text()

    def losses(self) -> dict[int, set[float]]:
        """Step -> each loss that was reported for it."""
        found: dict[int, set[float]] = {}
        for step in figures(self.out):
            found.setdefault(step["step"], set()).add(step["loss"])
        return found

    def num_steps(self) -> int:
        """Steps in the file of progress, repeated ones included."""
        return len(figures(self.out)) if (self.out / "progress.jsonl").exists() else 0

    def wait_for_steps(self, more: int = 2) -> None:
        """Until ``more`` steps more are done."""
        wanted = self.num_steps() + more
        until(lambda: self.num_steps() >= wanted, seconds=PATIENCE_S, what=f"{more} steps; {self.words[-2000:]}")

    def wait_for_attempt(self, number: int) -> None:
        """Until an attempt trains, with a first step."""
        until(
            lambda: self.state.attempt >= number and self.state.phase is Phase.TRAIN,
            seconds=PATIENCE_S,
            what=f"attempt {number}; {self.words[-2000:]}",
        )
        self.wait_for_steps()

    def executor(self, node: str) -> int:
        """Pid of the executor of a node, from the newest state that was stored."""
        report = self.state.nodes[node].report
        assert report is not None
        return self._seen(int(report.life.rpartition(" ")[2]))

    def driver(self) -> int:
        """Pid of the driver."""
        place = JobFolder(self.out).read(DRIVER, DriverPlace)
        assert place is not None
        return self._seen(place.pid)

    def ranks(self) -> dict[int, int]:
        """Rank -> pid, in the newest attempt."""
        state = self.state
        found = {}
        for node in state.members:
            for folder in find_rank_dirs(JobFolder(self.out).node(node) / "spool", state.run_id, state.attempt):
                with suppress(RankscopeError):
                    identity = RankReader(folder).identity()
                    found[identity.rank] = self._seen(identity.pid)
        return found

    @property
    def has_ended(self) -> bool:
        """Whether the command has ended."""
        assert self.process is not None
        return self.process.poll() is not None

    def processes(self, word: str) -> list[int]:
        """Pids of processes of the job with ``word`` on their command line, below the command and the executors."""
        roots = [self._pid, *map(self.executor, self.state.nodes)]
        found = {pid for root in roots for pid in descendants(root)}
        return [self._seen(pid) for pid in sorted(found) if word in command_line(pid)]

    def kill(self, pid: int, number: int = signal.SIGKILL) -> None:
        os.kill(pid, number)

    def left(self) -> list[int]:
        """Processes of the job that still live."""
        return [pid for pid, born in self.born.items() if born and birth_of(pid) == born]

    @property
    def _pid(self) -> int:
        assert self.process is not None
        return self._seen(self.process.pid)

    def _seen(self, pid: int) -> int:
        self.born.setdefault(pid, birth_of(pid))
        return pid


def with_tests() -> dict[str, str]:
    """An environment in which the modules of the tests are found."""
    return {**os.environ, "PYTHONPATH": os.getcwd()}


@contextmanager
def driven_job(out: Path, *options: str, is_paced: bool = False) -> Iterator[DrivenJob]:
    """A driven job, started. Everything that it started ends with the block."""
    job = DrivenJob(out, (*TINY, *options), is_paced)
    job.start()
    try:
        until(lambda: (out / "drive" / STATE).exists(), seconds=PATIENCE_S, what="a driver")
        yield job
    finally:
        with suppress(AssertionError, RankscopeError, ValueError):
            for node in job.state.nodes:
                job.executor(node)
            job.ranks()
        if job.process is not None and job.process.poll() is None:
            job.process.kill()
            job.process.wait()
        for pid in job.left():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@contextmanager
def slowed(pid: int) -> Iterator[None]:
    """Stop and continue everything that a process starts, so that it runs a quarter of the time."""
    ended = threading.Event()

    def send(number: int, seconds: float) -> None:
        for child in descendants(pid):
            with suppress(ProcessLookupError):
                os.kill(child, number)
        ended.wait(seconds)

    def run() -> None:
        while not ended.is_set():
            send(signal.SIGSTOP, STOPPED_S)
            send(signal.SIGCONT, CONTINUED_S)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        send(signal.SIGCONT, 0.0)


def descendants(pid: int) -> list[int]:
    """Pids of the children of a process, of their children, and so on."""
    found: list[int] = []
    with suppress(OSError):
        for child in children(pid):
            found += [child, *descendants(child)]
    return found


def command_line(pid: int) -> list[str]:
    """The words of a command; none if the process has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    return []


def children(pid: int) -> list[int]:
    """Pids of the children of a process."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def decisions_of(out: Path) -> list[str]:
    """Names of the decisions, oldest first."""
    return [json.loads(line)["name"] for line in (out / "drive" / "decisions.jsonl").read_text().splitlines()]
