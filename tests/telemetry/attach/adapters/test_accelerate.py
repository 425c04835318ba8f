"""A loop with Accelerate on two ranks, recorded by the tracker of rankscope."""

from pathlib import Path

import pytest

from telemetry.stages import Stage
from tests.telemetry.attach.adapters.framework_ranks import NUM_RANKS, SLOW_RANK, needs, script, train

pytestmark = [pytest.mark.gloo, needs("accelerate")]
JOB = script("accelerate_job")
STEPS, ACCUMULATED = 12, 2


@pytest.mark.long
def test_tracker_alone_records_steps_checkpoints_and_samples_of_every_rank(tmp_path: Path) -> None:
    trained = train(JOB, tmp_path / "adapted", "tracker")
    for rank in range(NUM_RANKS):
        assert not trained.problems(rank)
        assert trained.steps_of(Stage.STEP, rank) == list(range(STEPS))
        counts = trained.counts(rank)
        assert counts["backward-compute"] == STEPS * ACCUMULATED
        assert counts["grads-all-reduce"] >= STEPS
        assert counts["checkpoint-write"] == 1
    samples = [name for name, _ in trained.recorded().samples]
    assert samples.count("loss") == samples.count("learning-rate") == STEPS
    assert trained.suspects() == []


@pytest.mark.long
def test_losses_are_bit_identical_with_the_tracker_and_the_slow_rank_is_named(tmp_path: Path) -> None:
    plain = train(JOB, tmp_path / "plain")
    trained = train(JOB, tmp_path / "slow", "tracker", slow=True)
    assert trained.losses == plain.losses
    assert trained.suspects() == [[SLOW_RANK]]
