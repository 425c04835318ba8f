"""Trainings of the bundled trainer in GPU checks: `rankscope train` in a process of its own, and what it wrote."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

TAIL = 1500
"""Characters of the output of a failed training that its error contains."""


def train(out: Path, recipe: str, *options: str) -> list[dict[str, Any]]:
    """Train, with all files in ``out``. Returns the figures of each step (``trainer/progress.py``).

    Raises:
        RuntimeError: the training failed.
    """
    words = [sys.executable, "-m", "rankscope", "train", "--recipe", recipe, "--out", str(out), *options]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        logs = "".join(path.read_text()[-TAIL:] for path in sorted(out.glob("logs/*")))
        raise RuntimeError(f"{' '.join(words[2:])}: status {done.returncode}\n{done.stdout[-TAIL:]}\n{logs}")
    return [json.loads(line) for line in (out / "progress.jsonl").read_text().splitlines()]
