"""Trainings of the bundled trainer in GPU checks: `rankscope train` in a separate process, and its figures."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from trainer.output import PROGRESS

TAIL = 1500
"""Characters of the output of a failed training that its error contains."""


def train(out: Path, recipe: str, *options: str) -> list[dict[str, Any]]:
    """Train, with all files in ``out``. Returns the figures of each step (``trainer/progress.py``).

    Raises:
        RuntimeError: the training failed.
    """
    command = [sys.executable, "-m", "rankscope", "train", "--recipe", recipe, "--out", str(out), *options]
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if result.returncode:
        logs = "".join(path.read_text()[-TAIL:] for path in sorted(out.glob("logs/*")))
        raise RuntimeError(f"{' '.join(command[2:])}: status {result.returncode}\n{result.stdout[-TAIL:]}\n{logs}")
    return [json.loads(line) for line in (out / PROGRESS).read_text().splitlines()]
