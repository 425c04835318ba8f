"""The Trainer of transformers on two ranks."""

from pathlib import Path

import pytest

from telemetry.stages import Stage
from tests.telemetry.attach.adapters.framework_ranks import NUM_RANKS, SLOW_RANK, needs, script, train

pytestmark = [pytest.mark.gloo, needs("transformers")]
JOB = script("transformers_job")
STEPS, ACCUMULATED, EVALUATED_AFTER, SAVED_AFTER = 12, 2, 6, 8


def test_attached_transformers_trainer_has_exact_steps_evaluations_and_checkpoints(tmp_path: Path) -> None:
    trained = train(JOB, tmp_path / "attached", forks=True, RANKSCOPE="1")
    for rank in range(NUM_RANKS):
        assert not trained.problems(rank)
        counts = trained.counts(rank)
        assert counts["backward-compute"] == STEPS * ACCUMULATED
        assert counts["optimizer"] == STEPS
        assert counts["grads-all-reduce"] >= STEPS
        assert counts["data-load"] >= STEPS * ACCUMULATED
    assert trained.steps_of(Stage.STEP) == list(range(STEPS))
    assert trained.steps_of(Stage.EVALUATION) == [EVALUATED_AFTER - 1, STEPS - 1]
    assert trained.steps_of(Stage.CHECKPOINT_WRITE) == [SAVED_AFTER - 1, STEPS - 1]
    assert not trained.overlaps()
    samples = {name for name, _ in trained.recorded().samples}
    assert samples >= {"loss", "gradient-norm", "learning-rate", "eval-loss", "tokens-per-second"}
    assert trained.suspects() == []


@pytest.mark.long
def test_transformers_callback_starts_a_session_and_losses_are_bit_identical(tmp_path: Path) -> None:
    plain = train(JOB, tmp_path / "plain")
    trained = train(JOB, tmp_path / "adapted", "callback")
    assert trained.losses == plain.losses
    assert len(plain.losses[0]) > 2 * STEPS
    assert not (plain.folder / "spool").exists()
    assert trained.steps_of(Stage.STEP) == list(range(STEPS))
    assert "recording run" in trained.errors[0]


@pytest.mark.long
def test_slow_rank_of_a_transformers_job_is_the_only_suspect(tmp_path: Path) -> None:
    trained = train(JOB, tmp_path / "slow", "callback", slow=True, RANKSCOPE="1")
    assert trained.suspects() == [[SLOW_RANK]]
    assert trained.steps_of(Stage.STEP) == list(range(STEPS))  # once each, with two callbacks
