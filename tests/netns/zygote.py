"""A process that has imported torch and the trainer, and forks the ranks of a job on request.

harness -- "start OUT" -->  zygote (fork_ranks.py)  -- fork --> rank 0 .. rank 7, each on its host
           "end OUT"           '-- OUT/pids.json at the start, OUT/ended.jsonl with a line when each rank ends

Imports take seconds and a fork takes almost no time, so one zygote can serve many jobs. If the harness (the test
process) ends in any way, the zygote kills its ranks and ends.
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
    """The place of one rank."""

    namespace: str
    host_name: str
    local_rank: int
    spool: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The description of a job for the zygote."""

    config: TrainConfig
    options: RunOptions
    berths: tuple[Berth, ...]
    """Places of the ranks, by rank."""
    environment: dict[str, str]
    """Variables added to the environment of the zygote."""


class Zygote:
    """The zygote, as the test process sees it, during the block. It imports its modules in the background."""

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
        """Let the zygote fork the ranks of ``plan``."""
        (plan.options.out / PLAN).write_bytes(pickle.dumps(plan))
        self._tell("start", plan.options.out)

    def end(self, out: Path) -> None:
        """Let the zygote kill the running ranks of a job."""
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
    """Process ids by rank. Empty before the ranks have started."""
    with suppress(OSError):
        found: list[int] = json.loads((out / PIDS).read_text())
        return found
    return []


def statuses(out: Path) -> dict[int, int]:
    """Exit status of each rank that has ended. A negative number is the signal that killed it."""
    with suppress(OSError):
        lines = (out / ENDED).read_text().splitlines()
        return {one["rank"]: one["status"] for one in map(json.loads, lines)}
    return {}
