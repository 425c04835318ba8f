"""The demo as its user runs it: a process of its own, judged by what it prints and how it ends."""

import json
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


def run_demo(out: Path, *arguments: str) -> Demo:
    """Run `rankscope demo --exit --json`; it must end with status 0."""
    command = [sys.executable, "-m", "ui.cli", "demo", "--exit", "--json", "--out", str(out), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEMO_S, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return Demo(out=out, answer=json.loads(done.stdout))
