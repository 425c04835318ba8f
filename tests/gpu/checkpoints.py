"""Checkpoints of a training on a GPU: what a snapshot costs the step, and whether a resumed training continues exactly.

first       steps 0 .. 11, checkpoints after steps 5 and 11
resumed     steps 6 .. 11, from the checkpoint after step 5: the loss of step 6 is the same in all digits

Later losses may differ: the backward of attention adds in another order each time. No checkpoint is due between the
two, because the write of the first can take longer than the steps.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from telemetry.stages import Stage
from tests.gpu.outcome import say
from tests.trainer.recorded import Records, of_stage, spans_of
from trainer.checkpoint.folder import complete_name, complete_steps
from trainer.output import PROGRESS

RECIPE, STEPS, EVERY = "one_gpu", 12, 6
MAX_DIFFERENCE = 0.01
"""Of a loss after the first continued step, relative."""
TAIL = 1500
"""Characters of the output of a failed training that its error contains."""


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="rankscope-gpu-") as name:
        folder = Path(name)
        options = ["--steps", str(STEPS), "--checkpoints", str(folder / "saved"), "--checkpoint-every", str(EVERY)]
        first = train(folder / "first", *options)
        complete = complete_steps(folder / "saved")
        shutil.rmtree(folder / "saved" / complete_name(STEPS))
        resumed = train(folder / "resumed", *options)
        spans = spans_of(folder / "first")[0]
    differences = differences_of(first, resumed)
    figures = {
        "checkpoints": complete,
        "resumed_at": min(differences, default=None),
        "differences": differences,
        "step_ms": round(median(step["step_seconds"] for step in first) * 1e3, 1),
        "snapshots_ms": [
            round(duration_ns / 1e6, 1) for duration_ns in _durations_ns(spans, Stage.CHECKPOINT_SNAPSHOT)
        ],
        "writes_s": [round(duration_ns / 1e9, 2) for duration_ns in _durations_ns(spans, Stage.CHECKPOINT_WRITE)],
    }
    reason = what_is_wrong(differences)
    say("failed" if reason else "passed", figures, reason)


def train(out: Path, *options: str) -> list[dict[str, Any]]:
    """Train, with all files in ``out``. Returns the figures of each step (``trainer/progress.py``).

    Raises:
        RuntimeError: the training failed.
    """
    command = [sys.executable, "-m", "rankscope", "train", "--recipe", RECIPE, "--out", str(out), *options]
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if result.returncode:
        logs = "".join(path.read_text()[-TAIL:] for path in sorted(out.glob("logs/*")))
        raise RuntimeError(f"{' '.join(command[2:])}: status {result.returncode}\n{result.stdout[-TAIL:]}\n{logs}")
    return [json.loads(line) for line in (out / PROGRESS).read_text().splitlines()]


def differences_of(first: Iterable[Mapping[str, Any]], resumed: Iterable[Mapping[str, Any]]) -> dict[int, float]:
    """Step -> relative difference of the losses of two trainings, for each step of the second one."""
    losses = {step["step"]: step["loss"] for step in first}
    return {step["step"]: abs(step["loss"] / losses[step["step"]] - 1) for step in resumed}


def what_is_wrong(differences: Mapping[int, float]) -> str:
    """Why the training did not continue exactly. Empty if it did."""
    if sorted(differences) != list(range(EVERY, STEPS)):
        return f"the resumed training did steps {sorted(differences)}"
    if differences[EVERY] or max(differences.values()) > MAX_DIFFERENCE:
        return "the losses of the resumed training differ"
    return ""


def _durations_ns(spans: Records, stage: Stage) -> list[int]:
    durations_ns: list[int] = of_stage(spans, stage)["duration_ns"].tolist()
    return durations_ns


if __name__ == "__main__":
    main()
