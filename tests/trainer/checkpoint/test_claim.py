"""Mistakes with the folder of checkpoints end the command before any rank starts."""

import fcntl
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp

import pytest

from telemetry.errors import UsageError
from tests.each_case import each_case
from tests.integration.local_users import HOSTILE, as_user, shared_machine
from tests.trainer.checkpoint.checkpoint_files import complete
from trainer.checkpoint.claim import claimed
from trainer.checkpoint.folder import ABOUT_NAME, LOCK_NAME, complete_name, complete_steps
from trainer.config import ModelConfig, ParallelConfig, TrainConfig
from ui.cli.commands.train import TrainOptions
from ui.cli.train import options_from, train

CONFIG = TrainConfig()


def test_two_jobs_cannot_write_into_one_folder(tmp_path: Path) -> None:
    with claimed(tmp_path / "root", CONFIG):
        with pytest.raises(UsageError, match="another job writes into") as raised, claimed(tmp_path / "root", CONFIG):
            pass
        assert "hint: end that job" in str(raised.value)
    with claimed(tmp_path / "root", CONFIG):
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to act as another user")
def test_another_user_cannot_take_the_lock_even_in_a_folder_that_all_can_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKSCOPE_UMASK", "022")
    with shared_machine() as machine:
        root = machine.root / "checkpoints"
        with claimed(root, CONFIG):
            pass
        as_user(HOSTILE, _assert_not_lockable, root / LOCK_NAME)


def _assert_not_lockable(path: Path) -> None:
    with pytest.raises(PermissionError):
        fcntl.flock(os.open(path, os.O_RDONLY), fcntl.LOCK_SH)


@each_case(
    ("other", "named", "hint"),
    [
        (replace(CONFIG, seed=1), "seed is 0 there, and 1 here", "--seed"),
        (replace(CONFIG, model=ModelConfig(num_layers=8)), "num_layers is 4 there, and 8 here", "num_layers"),
        (replace(CONFIG, parallel=ParallelConfig(num_microbatches=8)), "tokens_per_step", "change --microbatches"),
        (replace(CONFIG, data=replace(CONFIG.data, path=Path(__file__))), "data is the sources of Python", "--data"),
    ],
)
def test_checkpoints_of_another_training_are_rejected_with_the_difference(
    other: TrainConfig, named: str, hint: str, tmp_path: Path
) -> None:
    root = Path(mkdtemp(dir=tmp_path)) / "root"
    complete(root, 1)
    with pytest.raises(UsageError, match=named) as raised, claimed(root, other):
        pass
    assert hint in raised.value.hint
    assert "remove" not in raised.value.hint
    assert complete_steps(root) == [1]


def test_checkpoints_are_accepted_with_another_grid_and_more_steps(tmp_path: Path) -> None:
    complete(tmp_path / "root", 1)
    other = replace(CONFIG, num_steps=900, parallel=ParallelConfig(dp=2, tp=2, num_microbatches=2))
    with claimed(tmp_path / "root", other):
        pass


def test_damaged_checkpoint_does_not_prevent_the_claim_of_the_folder(tmp_path: Path) -> None:
    complete(tmp_path / "root", 1, 2)
    (tmp_path / "root" / complete_name(2) / ABOUT_NAME).write_text("{")
    with claimed(tmp_path / "root", CONFIG):
        pass


@pytest.mark.parametrize("name", ["file", "file/below"])
def test_a_folder_that_cannot_be_made_is_a_usage_error(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="for checkpoints") as raised, claimed(tmp_path / name, CONFIG):
        pass
    assert "--checkpoints DIR" in raised.value.hint


@pytest.mark.parametrize("put", [os.mkfifo, lambda path: path.symlink_to(path.parent.parent / "target")])
def test_lock_that_is_not_a_regular_file_is_rejected(put: Callable[[Path], None], tmp_path: Path) -> None:
    (tmp_path / "root").mkdir(mode=0o700)
    put(tmp_path / "root" / LOCK_NAME)
    with pytest.raises(UsageError, match="not a regular file"), claimed(tmp_path / "root", CONFIG):
        pass
    assert not (tmp_path / "target").exists()


@contextmanager
def small_disk(root: Path, options: str) -> Iterator[None]:
    root.mkdir(mode=0o700)
    mount = ["mount", "-t", "tmpfs", "-o", f"mode=700{options}", "none", str(root)]
    if os.geteuid() or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("cannot mount here")
    try:
        yield
    finally:
        subprocess.run(["umount", str(root)], check=True)


def test_checkpoint_folder_can_be_a_mount_point(tmp_path: Path) -> None:
    root = tmp_path / "root"
    with small_disk(root, ""):
        complete(root, 1)
        with claimed(root, CONFIG):
            assert complete_steps(root) == [1]


def test_full_disk_is_reported_with_a_hint(tmp_path: Path) -> None:
    root = tmp_path / "root"
    with (
        small_disk(root, ",nr_inodes=1"),
        pytest.raises(UsageError, match=f"the disk of {root} is full") as raised,
        claimed(root, CONFIG),
    ):
        pass
    assert "free space there" in raised.value.hint


def test_command_rejects_checkpoints_of_another_training_with_status_2(tmp_path: Path) -> None:
    complete(tmp_path / "root", 1)
    places = ["--out", str(tmp_path / "out"), "--checkpoints", str(tmp_path / "root")]
    options = options_from(["--dp", "1", "--pp", "1", "--tp", "1", "--seed", "1", *places])
    with pytest.raises(UsageError, match="the checkpoints in") as raised:
        train(options)
    assert raised.value.exit_status == 2
    assert not list((tmp_path / "out").glob("logs/*"))


@pytest.mark.parametrize("given", [{"keep": 3}, {"checkpoint_every": 5}])
def test_checkpoint_options_without_a_folder_are_rejected(given: dict[str, int], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="without --checkpoints"):
        train(TrainOptions(out=tmp_path, **given))
