"""What ranks are made from: a process that has torch and the trainer already, and forks a job's ranks on request.

harness -- "start OUT" -->  zygote (fork_ranks.py)  -- fork --> rank 0 .. rank 7, each on the host of its place
           "end OUT"           '-- OUT/pids.json as they start, OUT/ended.jsonl a line as each ends

Loading takes seconds and a fork none, so one zygote may serve job after job. When the harness goes, however it goes,
the zygote kills its ranks and ends.
"""

import json
import pickle
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from trainer.config import TrainConfig
from trainer.run_options import RunOptions

PLAN, PIDS, ENDED, LOG = "plan.pickle", "pids.json", "ended.jsonl", "zygote.log"
END_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Berth:
    """Where one rank lives."""

    namespace: str
    host_name: str
    local_rank: int
    spool: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A job as the zygote is told of it."""

    config: TrainConfig
    options: RunOptions
    berths: tuple[Berth, ...]
    """By rank."""
    environment: dict[str, str]
    """On top of the zygote's."""


class Zygote:
    """The harness's end. It loads while the harness goes on; from entering to leaving."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / LOG

    def __enter__(self) -> Self:
        with self.log.open("ab") as log:
            command = [sys.executable, "-m", "tests.netns.fork_ranks"]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def start(self, plan: Plan) -> None:
        """Have the ranks of ``plan`` forked."""
        (plan.options.out / PLAN).write_bytes(pickle.dumps(plan))
        self._tell("start", plan.options.out)

    def end(self, out: Path) -> None:
        """Have what is left of a job killed."""
        self._tell("end", out)

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def _tell(self, word: str, out: Path) -> None:
        assert self._process.stdin is not None
        assert self.running, self.log.read_text()
        self._process.stdin.write(f"{word} {out}\n".encode())
        self._process.stdin.flush()


def pids(out: Path) -> list[int]:
    """By rank; empty before they have started."""
    with suppress(OSError):
        found: list[int] = json.loads((out / PIDS).read_text())
        return found
    return []


def statuses(out: Path) -> dict[int, int]:
    """Exit status of each rank that has ended; below zero the signal that killed it."""
    with suppress(OSError):
        lines = (out / ENDED).read_text().splitlines()
        return {one["rank"]: one["status"] for one in map(json.loads, lines)}
    return {}
