"""Trainings with a checkpoint after every step, on a grid that a trial chooses."""

from dataclasses import replace

from tests.trainer import jobs
from tests.trainer.jobs import small_config
from trainer.config import CheckpointConfig, TrainConfig

Grid = tuple[int, int, int]
"""Degrees of dp, pp and tp."""
FOREVER = 100_000
STEPS_AFTER = 4
"""Steps after a resume."""
START_S = jobs.JOB_S = 600.0
"""A busy machine needs minutes to start eight ranks."""


def grid_name(grid: Grid) -> str:
    return "x".join(map(str, grid))


def saving(grid: Grid, num_steps: int = FOREVER) -> TrainConfig:
    """A training with a checkpoint in every step."""
    dp, pp, tp = grid
    return replace(small_config(num_steps=num_steps, dp=dp, pp=pp, tp=tp), checkpoint=CheckpointConfig(every=1))
