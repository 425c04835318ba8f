"""A fault of one rank has the same effect on all ranks, and stops none."""

import subprocess
import sys
from pathlib import Path

import pytest

from trainer.checkpoint.folder import complete_name, complete_steps, damaged_name

pytestmark = pytest.mark.gloo


def ended(scenario: str, root: Path) -> tuple[list[str], str]:
    """Lines of the ranks, in order, and their messages."""
    command = [sys.executable, "-m", "tests.trainer.checkpoint.two_ranks", scenario, str(root)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.splitlines()), done.stderr


def test_a_checkpoint_of_which_one_rank_cannot_write_its_part_is_given_up(tmp_path: Path) -> None:
    lines, messages = ended("one_rank_cannot_write", tmp_path / "root")
    assert lines == ["0 finished", "1 finished"]
    assert complete_steps(tmp_path / "root") == []
    assert list((tmp_path / "root").iterdir()) == []
    assert "checkpoint after step 1 is not written: [Errno 116] Stale file handle" in messages
    assert "another rank could not write its part" in messages


def test_all_ranks_load_the_older_checkpoint_if_one_cannot_open_the_newest(tmp_path: Path) -> None:
    root = tmp_path / "root"
    lines, messages = ended("one_rank_cannot_open", root)
    assert lines == ["0 (2, [2.0])", "1 (2, [2.0])"]
    assert f"cannot load {root / complete_name(3)}: rank 1: [Errno 116] Stale file handle" in messages
    assert complete_steps(root) == [3, 2, 1]
    assert (root / damaged_name(3)).exists()


def test_a_damaged_checkpoint_is_reported_and_the_one_before_is_used(tmp_path: Path) -> None:
    root = tmp_path / "root"
    lines, messages = ended("one_shard_is_damaged", root)
    assert lines == ["0 (2, [2.0])", "1 (2, [2.0])"]
    assert f"cannot load {root / complete_name(3)}: rank " in messages
    assert "is damaged at byte" in messages
    assert complete_steps(root) == [3, 2, 1]
    assert (root / damaged_name(3)).exists()


def test_rank_0_does_not_wait_for_a_folder_that_was_removed(tmp_path: Path) -> None:
    lines, messages = ended("the_folder_is_removed", tmp_path / "root")
    assert lines == ["0 finished", "1 finished"]
    assert "No space left on device" in messages
    assert complete_steps(tmp_path / "root") == []
