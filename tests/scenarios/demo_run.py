"""The demo as a user runs it: a separate process, with its output and its exit status."""

import fcntl
import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DEMO_S = 280
STEPS, MICROBATCHES = 10, 2
"""A third and half of the usual numbers, because a step of eight ranks takes seconds of processor time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """A demo that has run."""

    out: Path
    answer: dict[str, Any]
    """What it printed."""

    @property
    def findings(self) -> list[tuple[str, list[int]]]:
        """Kind and initiating ranks of each finding."""
        return [(finding["kind"], finding["ranks"]) for finding in self.answer["findings"]]

    @property
    def loss_falls(self) -> bool:
        return bool(self.answer["loss"]["last"] < self.answer["loss"]["first"])

    def copied_to(self, out: Path) -> "Demo":
        """A copy for a test that opens the store, because a store has only one owner."""
        shutil.copytree(self.out, out, symlinks=True)  # symlinks connect the parts of a store
        return Demo(out=out, answer=self.answer)


def run_demo(out: Path, *arguments: str) -> Demo:
    """Run `rankscope demo --exit --json`; it must end with status 0."""
    command = [sys.executable, "-m", "ui.cli", "demo", "--exit", "--json", "--out", str(out), *arguments]
    # Without a umask, the processes of the demo must make their files private themselves.
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEMO_S, check=False, umask=0)
    assert done.returncode == 0, done.stderr[-4000:]
    return Demo(out=out, answer=json.loads(done.stdout))


def demo_in(folder: Path) -> Demo:
    """The demo in ``folder``. The first caller runs it, and other callers wait."""
    folder.mkdir(exist_ok=True)
    answer_file = folder / "answer.json"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not answer_file.exists():
            demo = run_demo(folder / "out", "--steps", str(STEPS), "--microbatches", str(MICROBATCHES))
            answer_file.write_text(json.dumps(demo.answer))
    return Demo(out=folder / "out", answer=json.loads(answer_file.read_text()))
