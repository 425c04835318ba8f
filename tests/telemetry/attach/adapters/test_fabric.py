"""Lightning Fabric on two ranks, attached through its entry point."""

from pathlib import Path

import pytest

from telemetry.stages import Stage
from tests.telemetry.attach.adapters.framework_ranks import SLOW_RANK, needs, script, train

pytestmark = [pytest.mark.gloo, pytest.mark.long, needs("lightning")]
JOB = script("fabric_job")
STEPS = 12


@pytest.mark.parametrize("package", ["lightning.fabric", "lightning_fabric"])
def test_fabric_steps_checkpoints_and_samples_are_recorded_with_bit_identical_losses(
    package: str, tmp_path: Path
) -> None:
    plain = train(JOB, tmp_path / "plain", package)
    trained = train(JOB, tmp_path / "attached", package, RANKSCOPE="1")
    assert trained.losses == plain.losses
    assert len(plain.losses[0]) == STEPS
    assert not trained.problems()
    assert trained.steps_of(Stage.STEP) == list(range(STEPS))
    assert trained.counts()["checkpoint-write"] == 1
    assert [name for name, _ in trained.recorded().samples] == ["loss"] * STEPS
    assert trained.suspects() == []


def test_slow_rank_of_a_fabric_job_is_the_only_suspect(tmp_path: Path) -> None:
    trained = train(JOB, tmp_path / "slow", "lightning.fabric", slow=True, RANKSCOPE="1")
    assert trained.suspects() == [[SLOW_RANK]]
