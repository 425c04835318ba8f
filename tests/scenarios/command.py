"""The command as its user runs it."""

import os
import subprocess
import sys
from dataclasses import dataclass

COMMAND_S = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a command said, and how it ended."""

    status: int
    out: str
    error: str


def rankscope(*arguments: object, **environment: str) -> Answer:
    """Run `rankscope` with these arguments to its end."""
    done = subprocess.run(
        [sys.executable, "-m", "ui.cli", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        check=False,
        env={**os.environ, "NO_COLOR": "1", "COLUMNS": "200", **environment},
    )
    return Answer(status=done.returncode, out=done.stdout, error=done.stderr)
