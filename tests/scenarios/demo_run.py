"""The demo as its user runs it: a process of its own, judged by what it prints and how it ends."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

DEMO_S = 280


def run_demo(out: Path, *arguments: str) -> dict[str, Any]:
    """The object that `rankscope demo --exit --json` prints; it must end with status 0."""
    command = [sys.executable, "-m", "ui.cli", "demo", "--exit", "--json", "--out", str(out), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEMO_S, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer
