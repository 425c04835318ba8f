"""A process that forks the ranks of jobs on request. It is forked from one that has loaded torch and the trainer.

harness -- "start OUT" -->  zygote (fork_ranks.py)  -- fork --> rank 0 .. rank 7, each on its host
           "end OUT"           '-- OUT/pids.json at the start, OUT/ended.jsonl with a line when each rank ends

One zygote can serve many jobs. Its commands arrive through a named pipe. If the harness (the test process) ends in any
way, the pipe is closed, and the zygote kills its ranks and ends.
"""

import json
import os
import pickle
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.trainer.launchers import start_forked
from trainer.config import TrainConfig
from trainer.run_options import RunOptions

PLAN, PIDS, ENDED, LOG, COMMANDS = "plan.pickle", "pids.json", "ended.jsonl", "zygote.log", "zygote.commands"
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
    """The zygote, as the test process sees it, during the block."""

    def __init__(self, folder: Path) -> None:
        self.log, self._commands = folder / LOG, folder / COMMANDS

    def __enter__(self) -> Self:
        os.mkfifo(self._commands)
        self._pipe = os.open(self._commands, os.O_RDWR)  # does not wait for the zygote
        self._process = start_forked("tests.netns.fork_ranks:serve", str(self._commands), log=self.log)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._pipe)
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
        assert self.running, self.log.read_text()
        os.write(self._pipe, f"{word} {out}\n".encode())


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
