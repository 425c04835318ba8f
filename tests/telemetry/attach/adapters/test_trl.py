"""A GRPOTrainer of TRL on two ranks."""

from pathlib import Path

import pytest

from telemetry.stages import Stage
from tests.telemetry.attach.adapters.framework_ranks import needs, script, train

pytestmark = [pytest.mark.gloo, pytest.mark.long, needs("trl")]
JOB = script("trl_job")
STEPS = 4


def test_trl_steps_rollouts_and_samples_are_recorded_with_bit_identical_losses(tmp_path: Path) -> None:
    plain = train(JOB, tmp_path / "plain")
    trained = train(JOB, tmp_path / "attached", RANKSCOPE="1")
    assert trained.losses == plain.losses
    assert len(plain.losses[0]) == STEPS
    assert not trained.problems()
    assert trained.steps_of(Stage.STEP) == list(range(STEPS))
    assert trained.steps_of(Stage.ROLLOUT) == list(range(STEPS))
    assert trained.counts()["backward-compute"] == STEPS
    samples = {name for name, _ in trained.recorded().samples}
    assert samples >= {"loss", "reward", "calculate-rewards-s", "prepare-inputs-s"}
