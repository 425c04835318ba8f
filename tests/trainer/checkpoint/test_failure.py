"""The message for the user why a checkpoint is not written. Full disks: ``test_two_ranks.py``."""

from pathlib import Path

import pytest

from trainer.checkpoint.failure import OTHER_RANK, OtherRankError, why_not_written

MISSING = FileNotFoundError(2, "No such file or directory", "/ckpt/step-1.partial")


@pytest.mark.parametrize("error", [MISSING, OtherRankError()])
def test_partial_folder_removed_by_rank_0_is_reported_as_a_failure_of_another_rank(
    error: Exception, tmp_path: Path
) -> None:
    assert why_not_written(error, tmp_path) == OTHER_RANK


def test_missing_checkpoint_folder_is_reported_with_its_path(tmp_path: Path) -> None:
    assert "/ckpt/step-1.partial: No such file or directory" in why_not_written(MISSING, tmp_path / "gone")


def test_error_without_a_message_is_reported_by_its_type(tmp_path: Path) -> None:
    assert why_not_written(RuntimeError(), tmp_path) == "RuntimeError"
