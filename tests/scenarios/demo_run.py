"""The demo as its user runs it: a process of its own, judged by what it prints and how it ends."""

import fcntl
import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DEMO_S = 280


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
        """The same, for somebody who opens its store: a store has one owner."""
        shutil.copytree(self.out, out, symlinks=True)  # those of a store tie its parts together
        return Demo(out=out, answer=self.answer)


def run_demo(out: Path, *arguments: str) -> Demo:
    """Run `rankscope demo --exit --json`; it must end with status 0."""
    command = [sys.executable, "-m", "ui.cli", "demo", "--exit", "--json", "--out", str(out), *arguments]
    # Without a umask: what the demo's processes create is as private as they make it.
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEMO_S, check=False, umask=0)
    assert done.returncode == 0, done.stderr[-4000:]
    return Demo(out=out, answer=json.loads(done.stdout))


def demo_in(folder: Path) -> Demo:
    """The demo that was run in ``folder``; whoever asks first runs it, the others wait."""
    folder.mkdir(exist_ok=True)
    told = folder / "answer.json"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not told.exists():
            demo = run_demo(folder / "out")
            told.write_text(json.dumps(demo.answer))
    return Demo(out=folder / "out", answer=json.loads(told.read_text()))
