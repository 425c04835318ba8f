"""The part of a step that a checkpoint takes, with a checkpoint in every step.

python -m tests.benchmarks.snapshot [--steps 24] [--json]

The recipe ``tiny_cpu`` on eight real ranks (2x2x2). The snapshot is inside the step. The write is beside the next
steps: the same training without checkpoints shows what both cost together.
"""

import argparse
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from telemetry.stages import Stage
from tests.benchmarks.figures import Figure, report
from tests.trainer.jobs import run_job
from tests.trainer.recorded import of_stage, spans_of
from trainer.checkpoint.folder import complete_steps
from trainer.config import CheckpointConfig
from trainer.recipes import tiny_cpu

STEPS = 24
WARM_UP = 2
"""The first steps also set up torch."""
MAX_SHARE = 5.0


class Snapshot:
    """One training with a checkpoint in every step, and one without."""

    title = "Checkpoints in every step"
    command = "python -m tests.benchmarks.snapshot"

    def __init__(self, num_steps: int = STEPS) -> None:
        self._num_steps = num_steps

    def run(self) -> list[Figure]:
        with tempfile.TemporaryDirectory(prefix="rankscope-snapshot-") as name:
            plain = self._train(Path(name) / "plain", saved=False)
            saved = self._train(Path(name) / "saved", saved=True)
            newest = complete_steps(Path(name) / "saved" / "checkpoints")[0]
        shares = 100 * saved[Stage.CHECKPOINT_SNAPSHOT] / saved[Stage.STEP]
        step_ms, plain_ms = saved[Stage.STEP] / 1e6, plain[Stage.STEP] / 1e6
        num_saved = int(np.isfinite(shares).sum(axis=1).min())
        return [
            Figure(
                name="snapshot, share of the step",
                value=float(np.nanmedian(shares)),
                low=float(np.nanpercentile(shares, 10)),
                high=float(np.nanpercentile(shares, 90)),
                unit="%",
                bound=MAX_SHARE,
                note=f"{num_saved} of {shares.shape[1]} steps have a snapshot; newest complete checkpoint: {newest}",
            ),
            Figure(
                name="snapshot",
                value=float(np.nanmedian(saved[Stage.CHECKPOINT_SNAPSHOT])) / 1e6,
                unit="ms",
            ),
            Figure(
                name="step",
                value=float(np.median(step_ms)),
                low=float(np.percentile(step_ms, 10)),
                high=float(np.percentile(step_ms, 90)),
                unit="ms",
                rival="without checkpoints",
                rival_value=float(np.median(plain_ms)),
            ),
        ]

    def _train(self, out: Path, *, saved: bool) -> dict[Stage, np.ndarray]:
        """Durations in nanoseconds, [ranks, steps]; NaN where a step has no span of the stage."""
        config = replace(tiny_cpu(), num_steps=self._num_steps, checkpoint=CheckpointConfig(every=1))
        run_job(config, out, checkpoints=out / "checkpoints" if saved else None)
        stages = (Stage.STEP, Stage.CHECKPOINT_SNAPSHOT)
        found = {stage: np.full((config.parallel.topology.world_size, self._num_steps), np.nan) for stage in stages}
        for rank, spans in spans_of(out).items():
            for stage in stages:
                mine = of_stage(spans, stage)
                found[stage][rank, mine["step"]] = mine["duration_ns"]
        return {stage: durations[:, WARM_UP:] for stage, durations in found.items()}


BENCHMARK = Snapshot()


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    benchmark = Snapshot(options.steps)
    return report(benchmark.title, benchmark.run(), as_json=options.json)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
