"""A resumed job has the losses of an uninterrupted job."""

import os
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from telemetry.record.reader import find_rank_dirs
from telemetry.stages import Stage
from tests.deadline import until
from tests.trainer.checkpoint.checkpoint_files import stored_bytes
from tests.trainer.jobs import figures, losses, rank_log, run_job, small_config, start_job
from tests.trainer.noted_batches import NOTED, sequences_of
from tests.trainer.recorded import of_stage, read_bytes, spans_of
from trainer.checkpoint.folder import LOCK_NAME, complete_name, complete_steps
from trainer.config import CheckpointConfig, TrainConfig

pytestmark = pytest.mark.gloo

NUM_STEPS = 8
TOLERANCE = 1e-5
"""Relative: another grid adds in another order."""
FOREVER = 100_000
MAX_COPIES = 1.05
"""Bytes that are read, divided by the size of the checkpoint."""


def config(*, num_steps: int = NUM_STEPS, every: int = 1, keep: int = 2, **parallel: int) -> TrainConfig:
    checkpoint = CheckpointConfig(every=every, keep=keep)
    return replace(small_config(num_steps=num_steps, **parallel), checkpoint=checkpoint)


@pytest.mark.parametrize("tp", [1, pytest.param(2, marks=pytest.mark.long)])
def test_job_resumes_with_bit_identical_losses_after_a_kill(tp: int, tmp_path: Path) -> None:
    root, undisturbed = tmp_path / "checkpoints", tmp_path / "undisturbed"
    job = start_job(config(num_steps=FOREVER, dp=2, tp=tp), tmp_path, checkpoints=root)
    until(lambda: bool(complete_steps(root)), seconds=60, what="a checkpoint")
    os.kill(job.rank_pids()[1], signal.SIGKILL)
    assert job.finish().status == 1
    newest = complete_steps(root)[0]
    run_job(config(num_steps=newest + 3, dp=2, tp=tp), tmp_path, checkpoints=root)
    run_job(config(num_steps=newest + 3, dp=2, tp=tp), undisturbed)
    assert [step["step"] for step in figures(tmp_path)[-3:]] == [newest, newest + 1, newest + 2]
    assert {folder.parent.name for folder in find_rank_dirs(tmp_path / "spool", "job")} == {"0", "1"}
    continued = losses(tmp_path)
    assert {step: continued[step] for step in range(newest + 3)} == losses(undisturbed)


@pytest.mark.long
def test_job_resumes_before_nan_gradients_with_bit_identical_losses(tmp_path: Path) -> None:
    root, undisturbed = tmp_path / "checkpoints", tmp_path / "undisturbed"
    ended = start_job(config(dp=2), tmp_path, fault="nan:rank=1,step=5", checkpoints=root).finish()
    assert (ended.status, "training failed: loss or gradient norm is not finite" in ended.words) == (1, True)
    assert rank_log(tmp_path, 0).count("loss or gradient norm is not finite in step 5") == 1
    assert 0 < complete_steps(root)[0] <= 5  # a checkpoint that is due waits for the one before
    assert np.isnan(figures(tmp_path)[-1]["gradient_norm"])
    run_job(config(dp=2), tmp_path, checkpoints=root)
    run_job(config(dp=2), undisturbed)
    assert losses(tmp_path) == losses(undisturbed)


@pytest.mark.long
def test_completed_job_saves_its_last_step_and_keeps_only_the_newest_checkpoints(tmp_path: Path) -> None:
    root = tmp_path / "checkpoints"
    run_job(config(num_steps=5, every=2, keep=2, dp=2), tmp_path, checkpoints=root)
    kept = complete_steps(root)
    assert kept[0] == 5
    assert len(kept) <= 2
    assert {path.name for path in root.iterdir()} == {LOCK_NAME, *map(complete_name, kept)}
    spans = np.concatenate([of_stage(each, Stage.CHECKPOINT_SNAPSHOT) for each in spans_of(tmp_path).values()])
    assert {step - 1 for step in kept} <= set(spans["step"])


def test_sigterm_saves_a_checkpoint_of_the_current_step(tmp_path: Path) -> None:
    root = tmp_path / "checkpoints"
    job = start_job(config(num_steps=FOREVER, every=FOREVER, dp=2), tmp_path, checkpoints=root)
    until(lambda: job.steps_done() >= 2, seconds=60, what="two steps")
    job.process.send_signal(signal.SIGTERM)
    assert job.finish().status == 128 + signal.SIGTERM
    assert complete_steps(root) == [len(figures(tmp_path))]


def test_sigterm_to_one_rank_saves_a_checkpoint_and_ends_the_job_with_its_status(tmp_path: Path) -> None:
    root = tmp_path / "checkpoints"
    job = start_job(config(num_steps=FOREVER, every=FOREVER, dp=2), tmp_path, checkpoints=root)
    until(lambda: job.steps_done() >= 2, seconds=60, what="two steps")
    os.kill(job.rank_pids()[1], signal.SIGTERM)
    assert job.finish().status == 128 + signal.SIGTERM
    assert complete_steps(root) == [len(figures(tmp_path))]


@pytest.mark.long
@pytest.mark.parametrize("grid", [{"dp": 4, "pp": 1, "tp": 2}, {"dp": 1, "pp": 2, "tp": 4}], ids=["4x1x2", "1x2x4"])
def test_job_resumed_on_another_grid_reads_one_copy_and_has_the_same_data_and_losses(
    grid: dict[str, int], tmp_path: Path
) -> None:
    whole, half, middle = tmp_path / "whole", tmp_path / "half", NUM_STEPS // 2
    root = half / "checkpoints"
    run_job(config(dp=2, pp=2, tp=2), whole, work=NOTED)
    run_job(config(num_steps=middle, dp=2, pp=2, tp=2), half, checkpoints=root, work=NOTED)
    stored = stored_bytes(root, middle)
    run_job(config(**grid), half, checkpoints=root, attempt=1, work=NOTED)
    assert 0.9 * stored < read_bytes(half, num_ranks=8) <= MAX_COPIES * stored
    assert losses(half) == pytest.approx(losses(whole), rel=TOLERANCE)
    assert sequences_of(half) == sequences_of(whole)


@pytest.mark.long
def test_four_replicas_together_read_one_copy_of_the_checkpoint(tmp_path: Path) -> None:
    root = tmp_path / "checkpoints"
    run_job(config(num_steps=2, dp=4), tmp_path, checkpoints=root)
    stored = stored_bytes(root, 2)
    run_job(config(num_steps=3, dp=4), tmp_path, checkpoints=root, attempt=1)
    assert 0.9 * stored < read_bytes(tmp_path, num_ranks=4) <= MAX_COPIES * stored
