"""Why a checkpoint is not written, in words for the user. Full disks: ``test_two_ranks.py``."""

from pathlib import Path

import pytest

from trainer.checkpoint.failure import OTHER_RANK, OtherRankError, why_not_written

MISSING = FileNotFoundError(2, "No such file or directory", "/ckpt/step-1.partial")


@pytest.mark.parametrize("error", [MISSING, OtherRankError()])
def test_a_checkpoint_whose_folder_rank_0_has_removed_failed_on_another_rank(error: Exception, tmp_path: Path) -> None:
    assert why_not_written(error, tmp_path) == OTHER_RANK


def test_a_folder_of_checkpoints_that_is_gone_is_named(tmp_path: Path) -> None:
    assert "/ckpt/step-1.partial: No such file or directory" in why_not_written(MISSING, tmp_path / "gone")


def test_an_error_without_words_is_named_by_its_kind(tmp_path: Path) -> None:
    assert why_not_written(RuntimeError(), tmp_path) == "RuntimeError"
