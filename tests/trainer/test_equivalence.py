"""Losses and gradient norms do not depend on the grid."""

from pathlib import Path

import pytest

from telemetry.stages import Stage
from tests.trainer.jobs import Ended, figures, run_job, small_config
from tests.trainer.recorded import spans_of

pytestmark = pytest.mark.gloo

TOLERANCE = 1e-5
"""Relative, of loss and gradient norm over five steps: float32 sums in another order. Measured: below 1e-6."""
NUM_STEPS = 5


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """One process without parallelism. It uses the same code."""
    return run_job(small_config(num_steps=NUM_STEPS), tmp_path_factory.mktemp("alone"))


@pytest.mark.parametrize(
    "grid",
    [
        pytest.param({"dp": 2, "pp": 2, "tp": 2}, id="2x2x2"),
        pytest.param({"pp": 2, "num_chunks": 2}, id="interleaved", marks=pytest.mark.long),
        pytest.param({"dp": 2, "pp": 2, "tp": 2, "num_chunks": 2}, id="2x2x2-interleaved", marks=pytest.mark.long),
        pytest.param({"tp": 2}, id="tp", marks=pytest.mark.long),
    ],
)
def test_loss_and_gradient_norm_match_the_single_process(grid: dict[str, int], alone: Ended, tmp_path: Path) -> None:
    spread = run_job(small_config(num_steps=NUM_STEPS, **grid), tmp_path)
    assert spread.losses == pytest.approx(alone.losses, rel=TOLERANCE)
    norms = [[step["gradient_norm"] for step in figures(job.out)] for job in (spread, alone)]
    assert norms[0] == pytest.approx(norms[1], rel=TOLERANCE)


@pytest.mark.long
def test_the_same_seed_gives_the_bit_identical_loss(tmp_path: Path) -> None:
    config = small_config(num_steps=5, dp=2, tp=2)
    first, second = (run_job(config, tmp_path / name) for name in ("first", "second"))
    assert first.losses == second.losses


def test_single_process_records_all_stages_except_collectives(alone: Ended) -> None:
    (spans,) = spans_of(alone.out).values()
    expected = (Stage.STEP, Stage.DATA_LOAD, Stage.FORWARD_COMPUTE, Stage.BACKWARD_COMPUTE)
    assert set(spans["stage"]) - {Stage.GC} == {*expected, Stage.OPTIMIZER, Stage.OPTIMIZER_CLIP}


def test_loss_falls_during_training(alone: Ended) -> None:
    assert alone.losses[-1] < alone.losses[0] - 1.0
