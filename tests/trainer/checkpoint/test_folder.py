"""A checkpoint is complete or absent, and only this user's checkpoints are read."""

import json
import os
from pathlib import Path
from tempfile import mkdtemp

import pytest

from telemetry.errors import UnreadableError, UnsafeFolderError
from tests.each_case import each_case
from tests.integration.local_users import HOSTILE
from tests.trainer.checkpoint.checkpoint_files import WRITER, about_of, complete, names
from trainer.checkpoint.folder import (
    ABOUT_NAME,
    commit,
    complete_name,
    complete_steps,
    damaged_name,
    make_root,
    open_checkpoint,
    partial_folder,
    read_about,
    remove_old,
    remove_partial,
    set_aside,
)


def test_new_checkpoint_of_a_stored_step_replaces_it_and_keeps_the_old_one_as_damaged(tmp_path: Path) -> None:
    complete(tmp_path / "root", 3)
    complete(tmp_path / "root", 3)
    assert names(tmp_path / "root") == {complete_name(3), damaged_name(3)}


def test_remove_old_keeps_the_newest_checkpoints_and_the_newest_damaged_one(tmp_path: Path) -> None:
    root = tmp_path / "root"
    complete(root, 1, 2, 3, 4, 5, 9)
    set_aside(root, 1)
    set_aside(root, 2)
    remove_old(root, newest=5, keep=2, writer_id=WRITER)
    assert names(root) == {damaged_name(2), complete_name(4), complete_name(5), complete_name(9)}


def test_partial_checkpoints_are_removed_except_the_one_under_way(tmp_path: Path) -> None:
    root = tmp_path / "root"
    complete(root, 1)
    for step, writer_id in ((2, "aa"), (3, "bb"), (3, WRITER)):
        with partial_folder(root, step, writer_id) as folder:
            os.close(folder.make("part"))
    remove_partial(root, besides=f"{complete_name(3)}.{WRITER}.partial")
    assert names(root) == {complete_name(1), f"{complete_name(3)}.{WRITER}.partial"}


@each_case(
    ("key", "value"),
    [("step", "1"), ("step", True), ("run_id", "../a"), ("run_id", 5), ("attempt", -1), ("training", []), ("new", 1)],
)
def test_invalid_checkpoint_json_is_rejected(key: str, value: object, tmp_path: Path) -> None:
    root = Path(mkdtemp(dir=tmp_path)) / "root"
    complete(root, 1)
    path = root / complete_name(1) / ABOUT_NAME
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    with pytest.raises(UnreadableError, match="another version"):
        read_about(root, 1)


def test_a_folder_into_which_others_can_write_is_not_read(tmp_path: Path) -> None:
    root = tmp_path / "root"
    complete(root, 1)
    root.chmod(0o777)
    for act in (lambda: read_about(root, 1), lambda: complete_steps(root), lambda: make_root(root)):
        with pytest.raises(UnsafeFolderError, match="other users can write"):
            act()
    root.chmod(0o700)
    (root / complete_name(1)).chmod(0o770)
    with pytest.raises(UnsafeFolderError, match="other users can write"):
        read_about(root, 1)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to act as another user")
def test_the_checkpoints_of_another_user_are_not_read(tmp_path: Path) -> None:
    root = tmp_path / "root"
    complete(root, 1)
    os.chown(root / complete_name(1), HOSTILE, HOSTILE)
    with pytest.raises(UnsafeFolderError, match="belongs to another user"), open_checkpoint(root, 1):
        pass
    os.chown(root, HOSTILE, HOSTILE)
    for act in (lambda: read_about(root, 1), lambda: complete_steps(root), lambda: make_root(root)):
        with pytest.raises(UnsafeFolderError, match="belongs to another user"):
            act()


def test_a_link_in_place_of_a_checkpoint_is_not_followed(tmp_path: Path) -> None:
    complete(tmp_path / "other", 1)
    make_root(tmp_path / "root")
    (tmp_path / "root" / complete_name(1)).symlink_to(tmp_path / "other" / complete_name(1))
    with pytest.raises(OSError), open_checkpoint(tmp_path / "root", 1):  # noqa: PT011 - the number depends on the kernel
        pass


def test_checkpoints_are_read_when_the_named_folder_is_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    complete(tmp_path / "real", 1)
    assert read_about(tmp_path / "link", 1) == about_of(1)


def test_writing_into_a_missing_checkpoint_folder_raises_file_not_found(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), partial_folder(tmp_path / "root", 1, WRITER):
        pass
    with pytest.raises(FileNotFoundError):
        commit(tmp_path / "root", about_of(1), WRITER)
