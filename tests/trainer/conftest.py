"""Trainings that several tests compare with."""

from dataclasses import replace

import pytest

from tests.trainer.jobs import Ended, run_job, small_config
from trainer.config import TrainConfig

NUM_STEPS = 5


def compared_config(**parallel: int) -> TrainConfig:
    """The small model. The global batch is the same on every grid: two microbatches for each of two replicas."""
    return small_config(num_steps=NUM_STEPS, global_microbatches=4, **parallel)


@pytest.fixture(scope="session")
def grid_config() -> TrainConfig:
    """The small model on eight ranks along all axes."""
    return replace(compared_config(dp=2, pp=2, tp=2), peak_tflops=1.0)


@pytest.fixture(scope="session")
def trained_on_a_grid(grid_config: TrainConfig, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    return run_job(grid_config, tmp_path_factory.mktemp("grid"))


@pytest.fixture(scope="session")
def trained_alone(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """The same training in one process, without parallelism. It uses the same code."""
    return run_job(compared_config(), tmp_path_factory.mktemp("alone"))
