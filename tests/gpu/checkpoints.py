"""Checkpoints of a training on a GPU: what a snapshot costs the step, and whether a resumed training continues exactly.

first       steps 0 .. 11, checkpoints after steps 5 and 11
resumed     steps 6 .. 11, from the checkpoint after step 5: the loss of step 6 is the same in all digits

Later losses may differ: the backward of attention adds in another order each time. No checkpoint is due between the
two, because the write of the first can take longer than the steps.
"""

import shutil
import tempfile
from pathlib import Path
from statistics import median

from telemetry.stages import Stage
from tests.gpu.outcome import say
from tests.gpu.trainings import train
from tests.trainer.recorded import of_stage, spans_of
from trainer.checkpoint.folder import complete_name, complete_steps

RECIPE, STEPS, EVERY = "one_gpu", 12, 6
MAX_DIFFERENCE = 0.01


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="rankscope-gpu-") as name:
        folder = Path(name)
        words = ["--steps", str(STEPS), "--checkpoints", str(folder / "saved"), "--checkpoint-every", str(EVERY)]
        first = train(folder / "first", RECIPE, *words)
        complete = complete_steps(folder / "saved")
        shutil.rmtree(folder / "saved" / complete_name(STEPS))
        resumed = train(folder / "resumed", RECIPE, *words)
        spans = spans_of(folder / "first")[0]
    losses = {step["step"]: step["loss"] for step in first}
    apart = {step["step"]: abs(step["loss"] / losses[step["step"]] - 1) for step in resumed}
    step_s = median(step["step_seconds"] for step in first)
    snapshots = [one / 1e9 for one in of_stage(spans, Stage.CHECKPOINT_SNAPSHOT)["duration_ns"].tolist()]
    figures = {
        "checkpoints": complete,
        "resumed_at": min(apart, default=None),
        "difference": {str(step): one for step, one in apart.items()},
        "step_ms": round(step_s * 1e3, 1),
        "snapshots_ms": [round(one * 1e3, 1) for one in snapshots],
        "write_s": [round(one / 1e9, 2) for one in of_stage(spans, Stage.CHECKPOINT_WRITE)["duration_ns"].tolist()],
    }
    wrong = []
    if sorted(apart) != list(range(EVERY, STEPS)):
        wrong.append(f"the resumed training did steps {sorted(apart)}")
    elif apart[EVERY] or max(apart.values()) > MAX_DIFFERENCE:
        wrong.append("the losses of the resumed training differ")
    say("failed" if wrong else "passed", figures, "; ".join(wrong))


if __name__ == "__main__":
    main()
