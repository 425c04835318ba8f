"""Checkpoints that contain a step that went wrong are never loaded."""

from pathlib import Path

import pytest

from telemetry.errors import UsageError
from tests.trainer.checkpoint.checkpoint_files import WRITER, complete, names
from trainer.checkpoint.folder import (
    ABOUT_NAME,
    complete_name,
    complete_steps,
    make_root,
    remove_old,
    remove_partial,
    rolled_back_name,
)
from trainer.checkpoint.rollback import roll_back


def rolled_back(root: Path, before_step: int, *, run_id: str = "job", attempt: int = 0) -> list[int]:
    return roll_back(root, run_id=run_id, attempt=attempt, before_step=before_step)


def test_rollback_hides_checkpoints_from_the_bad_step_on_and_keeps_the_first_of_them(tmp_path: Path) -> None:
    root = tmp_path / "root"
    complete(root, 20, 30, 40, 50, 60)
    assert rolled_back(root, 40) == [60, 50, 40]
    assert complete_steps(root) == [30, 20]
    remove_partial(root)
    assert names(root) == {complete_name(20), complete_name(30), rolled_back_name(40)}


def test_repeated_rollback_does_not_affect_checkpoints_of_later_attempts(tmp_path: Path) -> None:
    root = tmp_path / "root"
    complete(root, 30, 50)
    rolled_back(root, 40)
    complete(root, 45, 55, attempt=1)
    assert rolled_back(root, 40) == []
    assert complete_steps(root) == [55, 45, 30]
    assert rolled_back(root, 50, attempt=1) == [55]
    assert rolled_back(root, 45, attempt=1) == [45]


def test_late_checkpoint_of_an_ended_attempt_is_rolled_back(tmp_path: Path) -> None:
    root = tmp_path / "root"
    complete(root, 30, 50)
    rolled_back(root, 40)
    complete(root, 50)
    assert rolled_back(root, 40) == [50]
    assert complete_steps(root) == [30]


def test_checkpoints_of_another_run_or_without_a_readable_attempt_are_rolled_back_too(tmp_path: Path) -> None:
    root = tmp_path / "root"
    complete(root, 30, 50)
    complete(root, 60, attempt=7)
    assert rolled_back(root, 60, run_id="another") == [60]
    complete(root, 60, attempt=7)
    (root / complete_name(60) / ABOUT_NAME).write_text("{")
    assert rolled_back(root, 50, attempt=3) == [60, 50]


def test_rollback_that_would_leave_no_checkpoint_is_rejected(tmp_path: Path) -> None:
    root = tmp_path / "root"
    complete(root, 50, 60)
    with pytest.raises(UsageError, match="none has less than 50 steps"):
        rolled_back(root, 50)
    assert complete_steps(root) == [60, 50]


def test_rollback_in_a_folder_without_checkpoints_does_nothing(tmp_path: Path) -> None:
    root = tmp_path / "root"
    make_root(root)
    assert rolled_back(root, 3) == []


def test_remove_old_removes_all_rolled_back_checkpoints_except_the_newest(tmp_path: Path) -> None:
    root = tmp_path / "root"
    complete(root, 1, 2, 3)
    rolled_back(root, 3)
    rolled_back(root, 2)
    complete(root, 4)
    remove_old(root, newest=4, keep=1, writer_id=WRITER)
    assert names(root) == {rolled_back_name(3), complete_name(4)}
