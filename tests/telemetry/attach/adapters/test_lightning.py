"""The Trainer of Lightning on two ranks, attached through its entry point."""

from pathlib import Path

import pytest

from telemetry.stages import Stage
from tests.telemetry.attach.adapters.framework_ranks import NUM_RANKS, SLOW_RANK, needs, script, train

pytestmark = [pytest.mark.gloo, needs("lightning")]
JOB = script("lightning_job")
STEPS, ACCUMULATED, EVALUATED_AFTER, SAVED_AFTER = 12, 2, 6, 8


@pytest.mark.long
def test_attached_lightning_trainer_has_exact_steps_evaluations_and_checkpoints(tmp_path: Path) -> None:
    trained = train(JOB, tmp_path / "attached", "lightning.pytorch", RANKSCOPE="1")
    for rank in range(NUM_RANKS):
        assert not trained.problems(rank)
        counts = trained.counts(rank)
        assert counts["backward-compute"] == STEPS * ACCUMULATED
        assert counts["optimizer"] == STEPS
        assert counts["grads-all-reduce"] >= STEPS
        assert counts["data-load"] >= STEPS * ACCUMULATED
    assert trained.steps_of(Stage.STEP) == list(range(STEPS))
    # Before the first step: the sanity check of Lightning.
    assert trained.steps_of(Stage.EVALUATION) == [0, EVALUATED_AFTER - 1, STEPS - 1]
    assert trained.steps_of(Stage.CHECKPOINT_WRITE) == [SAVED_AFTER - 1]
    assert not trained.overlaps()
    samples = {name for name, _ in trained.recorded().samples}
    assert samples >= {"loss", "learning-rate", "val-loss"}
    assert trained.suspects() == []


@pytest.mark.long
@pytest.mark.parametrize("package", ["lightning.pytorch", "pytorch_lightning"])
def test_lightning_script_that_starts_a_session_is_recorded_with_bit_identical_losses(
    package: str, tmp_path: Path
) -> None:
    plain = train(JOB, tmp_path / "plain", package)
    trained = train(JOB, tmp_path / "adapted", package, "start")
    assert trained.losses == plain.losses
    assert len(plain.losses[0]) > STEPS * ACCUMULATED
    assert not (plain.folder / "spool").exists()
    assert trained.steps_of(Stage.STEP) == list(range(STEPS))
    assert trained.counts()["grads-all-reduce"] >= STEPS


@pytest.mark.long
def test_slow_rank_of_a_lightning_job_is_the_only_suspect(tmp_path: Path) -> None:
    trained = train(JOB, tmp_path / "slow", "lightning.pytorch", slow=True, RANKSCOPE="1")
    assert trained.suspects() == [[SLOW_RANK]]
