"""The files of a job are private under any umask. Links in place of them are not followed."""

import json
import os
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import mkdtemp

import pytest

from telemetry.errors import RankscopeError, UnsafeFolderError, UsageError
from telemetry.stages import Stage
from tests.each_case import each_case
from tests.integration.local_users import HOSTILE, as_user, shared_machine
from tests.telemetry.files.test_private_files import modes_below
from tests.trainer.jobs import small_config
from trainer.faults.inject import FIRED_NAME, StartFile, write_truth
from trainer.launch import ProgressLine
from trainer.output import FOLDERS, PROGRESS, make_out, open_log
from trainer.progress import Progress, StepFigures
from ui.cli.commands.drive import DriveOptions
from ui.cli.commands.train import TrainOptions
from ui.cli.drive import drive
from ui.cli.train import train

USUAL = Path("rankscope-out/train")
FIGURES = StepFigures(step=1, loss=2.0, gradient_norm=1.0, step_seconds=0.5)


@pytest.fixture
def out(tmp_path: Path) -> Iterator[Path]:
    """A folder that every user may write into. No umask protects new files."""
    before = os.umask(0)
    found = tmp_path / "out"
    found.mkdir(mode=0o777)
    try:
        yield found
    finally:
        os.umask(before)


def write_all(out: Path) -> None:
    with open_log(out, "rank-00000.log") as log:
        log.write(b"words")
    progress = Progress(small_config(), out / PROGRESS)
    progress.report([FIGURES])
    progress.close()
    write_truth(out / "truth.json", None, host="h", num_steps=1)
    StartFile(path=out / FIRED_NAME, rank=0).record_start(1, Stage.STEP)


def test_files_in_an_existing_output_folder_are_private(out: Path) -> None:
    write_all(out)
    write_all(out)
    assert modes_below(out) == {"folders": {0o700}, "files": {0o600}}
    assert (out / "logs" / "rank-00000.log").read_text() == "wordswords"


def test_a_folder_of_logs_that_others_could_read_becomes_private(out: Path) -> None:
    (out / "logs").mkdir(mode=0o755)
    open_log(out, "rank-00000.log").close()
    assert modes_below(out)["folders"] == {0o700}


def test_links_in_place_of_output_files_are_not_followed(out: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("untouched")
    (out / PROGRESS).symlink_to(target)
    with pytest.raises(OSError, match=PROGRESS):
        Progress(small_config(), out / PROGRESS)
    (out / "logs").symlink_to(tmp_path)
    with pytest.raises(UnsafeFolderError):
        open_log(out, "target")
    assert target.read_text() == "untouched"


def test_a_folder_of_logs_that_others_can_write_into_is_refused(out: Path) -> None:
    (out / "logs").mkdir(mode=0o777)
    with pytest.raises(UnsafeFolderError, match="chmod go-w"):
        open_log(out, "rank-00000.log")


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a folder to another user")


def put_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


PLANTS: dict[str, Callable[[Path], None]] = {
    "link": lambda path: path.symlink_to(path.parent.parent / "target"),
    "pipe": os.mkfifo,
    "socket": put_socket,
}


@each_case("command", ["train", "drive"])
@each_case("name", [*FOLDERS, PROGRESS])
@each_case("what", PLANTS)
def test_a_command_refuses_links_and_pipes_in_place_of_its_files(
    command: str, name: str, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(mkdtemp(dir=tmp_path))  # the address of a socket is short
    Path("target").mkdir()
    Path("out").mkdir(mode=0o700)
    PLANTS[what](Path("out", name))
    with pytest.raises((RankscopeError, OSError), match=name):
        train(TrainOptions(out=Path("out"))) if command == "train" else drive(DriveOptions(out=Path("out")))
    assert os.listdir("target") == []
    assert os.listdir("out") == [name]


@needs_root
def test_read_only_output_folder_is_rejected_with_a_clear_error() -> None:
    with shared_machine() as machine:
        as_user(HOSTILE, refuse_read_only, machine.hostile_folder())


def refuse_read_only(folder: Path) -> None:
    """As a user whose folder has lost the permission to write."""
    folder.chmod(0o500)
    with pytest.raises(UsageError, match=f"cannot write into {folder}: it is read-only"):
        make_out(folder, usual=USUAL)


@needs_root
@each_case("name", ["", *FOLDERS])
def test_a_folder_of_another_user_is_refused(name: str, tmp_path: Path) -> None:
    out = Path(mkdtemp(dir=tmp_path))
    (out / name).mkdir(mode=0o700, exist_ok=True)
    os.chown(out / name, HOSTILE, HOSTILE)
    with pytest.raises(UnsafeFolderError, match="belongs to another user"):
        make_out(out, usual=USUAL)


def test_output_folder_that_others_can_write_into_is_rejected_with_a_chmod_hint(out: Path) -> None:
    with pytest.raises(UnsafeFolderError, match=f"chmod go-w {out}"):
        make_out(out, usual=USUAL)
    out.chmod(0o755)
    link = out.with_name("link")
    link.symlink_to(out)
    assert make_out(link, usual=USUAL) == out, "a person has named it"


def test_default_output_folder_below_a_folder_that_others_can_write_into_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    USUAL.parent.mkdir()
    USUAL.parent.chmod(0o777)
    with pytest.raises(UnsafeFolderError, match="chmod go-w"):
        make_out(USUAL, usual=USUAL)


def figures_of(step: int) -> str:
    return json.dumps({"step": step, "loss": 3.0, "step_seconds": 1.0, "tokens_per_second": 8}) + "\n"


def test_progress_without_a_terminal_prints_every_tenth_step_and_the_last(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    line = ProgressLine(tmp_path, 25)
    (tmp_path / PROGRESS).write_text("".join(map(figures_of, range(25))))
    line.update()
    assert re.findall(r"step (\d+)/25", capfd.readouterr().err) == ["10", "20", "25"]


def test_torn_progress_line_is_skipped(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    line = ProgressLine(tmp_path, 10)
    (tmp_path / PROGRESS).write_text(f'{{"step": 8, "lo{figures_of(9)}{figures_of(9)}')
    line.update()
    assert capfd.readouterr().err.count("step 10/10") == 1
