"""Invalid paths for options of every command: status 2, one line and a hint; no traceback and no wait."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scenarios.command import Answer, rankscope
from tests.scenarios.test_bad_input import assert_error


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """One invalid path of each kind."""
    folder = tmp_path_factory.mktemp("paths")
    (folder / "file").write_text("x")
    (folder / "loop").symlink_to(folder / "loop")
    os.mkfifo(folder / "fifo")
    return {path.name: str(path) for path in folder.iterdir()} | {"device": "/dev/zero", "proc": "/proc/x"}


WRONG_PATHS = [
    *(("train", "--steps", "1", "--out", kind) for kind in ("file", "proc", "loop")),
    ("demo", "--exit", "--out", "file"),
    *(("import", "kineto", "--store", "embedded:", kind) for kind in ("device", "fifo")),
    ("import", "straggler-analysis", "--store", "embedded:", "--meta", "file", "fifo"),
    ("simulate", "--steps", "2", "--store", "embedded:", "--truth", "fifo"),
    ("doctor", "--node", "--expect", "device"),
    ("diagnose", "hang", "--dumps", "fifo"),
    ("diagnose", "--spool", "file"),
    ("alerts", "list", "--state", "fifo"),
    ("collect", "--tls-cert", "fifo", "--tls-key", "fifo"),
    ("collect", "--port", "0", "--store", "embedded:loop"),
]


@pytest.mark.parametrize("arguments", WRONG_PATHS, ids=" ".join)
def test_invalid_path_is_an_error_with_a_hint(arguments: tuple[str, ...], paths: dict[str, str]) -> None:
    *words, last = arguments
    scheme, colon, kind = last.rpartition(":")
    answer = rankscope(*(paths.get(word, word) for word in words), f"{scheme}{colon}{paths[kind]}")
    assert_error(answer, 2, paths[kind])
    assert len(answer.error.strip().splitlines()) == 3, answer.error


@pytest.mark.parametrize("variable", ["RANKSCOPE_TOKEN_FILE", "RANKSCOPE_CA_FILE"])
def test_fifo_as_token_or_certificate_file_is_rejected(variable: str, paths: dict[str, str]) -> None:
    assert_error(rankscope("runs", "--store", "https://127.0.0.1:9", **{variable: paths["fifo"]}), 2, variable)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.getuid() != 0:
        pytest.skip("needs root to mount a small disk")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "none", tmp_path], check=True)
    try:
        yield tmp_path
    finally:
        subprocess.run(["umount", "--lazy", tmp_path], check=True)


@pytest.mark.parametrize("command", [pytest.param("train", marks=pytest.mark.long), "demo"])
def test_a_full_disk_ends_a_command_with_a_hint(command: str, small_disk: Path) -> None:
    (small_disk / "ballast").write_bytes(b"x" * 16_384)
    assert_error(rankscope(command, "--steps", 1, "--out", small_disk / "out"), 2, "free some space")


def test_full_output_device_is_reported_with_a_hint() -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "ui.cli", "doctor", "--json"]
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert_error(Answer(status=ended.returncode, out="", error=ended.stderr), 2, "No space left on device")


def test_closed_output_pipe_exits_with_status_141_and_no_message() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "ui.cli", "doctor", "--json"]
    ended = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (141, "")
