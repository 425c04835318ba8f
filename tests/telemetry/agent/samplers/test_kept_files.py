"""Files that are read repeatedly."""

import os
import subprocess
from pathlib import Path

import pytest

from telemetry.agent.samplers.kept_files import TRIES, Descriptors, KeptFile


def test_each_read_returns_the_current_number(tmp_path: Path) -> None:
    path = tmp_path / "number"
    file = KeptFile(path, Descriptors())
    for number in (7, 123_456_789_012, -1):
        path.write_text(f"{number}\n")
        assert file.number() == number


def test_a_file_kept_open_is_opened_once(tmp_path: Path) -> None:
    path = tmp_path / "number"
    path.write_text("1\n")
    kept, opened_each_time = KeptFile(path, Descriptors(1)), KeptFile(path, Descriptors(0))
    assert (kept.number(), opened_each_time.number()) == (1, 1)
    path.unlink()
    assert (kept.number(), opened_each_time.number()) == (1, None)


def test_closing_gives_the_descriptor_back(tmp_path: Path) -> None:
    path = tmp_path / "number"
    path.write_text("1\n")
    descriptors = Descriptors(1)
    file = KeptFile(path, descriptors)
    num_open = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        assert file.number() == 1
        file.close()
        file.close()
    assert len(os.listdir("/proc/self/fd")) == num_open
    assert descriptors.take()
    assert not descriptors.take()


@pytest.mark.parametrize("content", [b"", b"up\n", b"\xff\xfe\x00", b"1 2\n", b"0x10\n", b"9" * 100, b"9" * 9000])
def test_file_without_a_valid_number_is_read_as_none(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "number"
    path.write_bytes(content)
    assert KeptFile(path, Descriptors()).number() is None


def test_folder_dangling_link_and_pipe_are_read_as_none_without_blocking(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe")
    for name in ("folder", "dangling", "pipe", "missing"):
        file = KeptFile(tmp_path / name, Descriptors())
        assert (file.number(), file.text()) == (None, "")
        file.close()


def test_file_that_fails_repeatedly_is_not_read_until_try_again_is_called(tmp_path: Path) -> None:
    path = tmp_path / "number"
    path.write_text("busy\n")
    file = KeptFile(path, Descriptors())
    assert [file.number() for _ in range(TRIES)] == [None] * TRIES
    path.write_text("5\n")
    assert file.number() is None
    file.try_again()
    assert file.number() == 5


@pytest.mark.parametrize("at_most", [0, 1])
def test_a_long_file_is_read_to_its_end(tmp_path: Path, at_most: int) -> None:
    path = tmp_path / "long"
    path.write_bytes(b"0123456789" * 20_000)
    file = KeptFile(path, Descriptors(at_most))
    assert [len(file.content()) for _ in range(2)] == [200_000] * 2


def test_missing_file_is_read_as_empty_and_its_content_is_read_when_it_appears(tmp_path: Path) -> None:
    path = tmp_path / "comes and goes"
    file = KeptFile(path, Descriptors(1))
    assert file.content() == b""
    path.write_text("here\n")
    assert file.content() == b"here\n"


def test_proc_file_of_an_ended_process_is_read_as_empty() -> None:
    process = subprocess.Popen(["sleep", "600"])
    file = KeptFile(Path(f"/proc/{process.pid}/stat"), Descriptors(1))
    assert file.content()
    process.kill()
    process.wait()
    assert file.content() == b""
