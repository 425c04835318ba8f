"""A file is written completely or not at all."""

import gzip
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from diagnose.trace.whole_file import whole_file
from telemetry.errors import UsageError

ROOM_BYTES = 65_536


@contextmanager
def little_room() -> Iterator[None]:
    """No file of this process may grow beyond ``ROOM_BYTES``: writing more fails as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM_BYTES, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def write(path: Path, content: bytes, interruption: BaseException | None = None) -> None:
    with whole_file(path) as file:
        file.write(content)
        if interruption:
            raise interruption


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_file_appears_with_its_whole_content_when_the_block_ends(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    with whole_file(path) as file:
        file.write(b"whole")
        assert not path.exists()
    content = path.read_bytes()
    assert (gzip.decompress(content) if name.endswith(".gz") else content) == b"whole"
    assert [entry.name for entry in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_full_disk_keeps_the_old_file_and_leaves_no_other_file(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text("old")
    with little_room(), pytest.raises(UsageError) as raised:
        write(path, os.urandom(64 * ROOM_BYTES))
    assert ("hint: use --out" in str(raised.value), str(path) in str(raised.value)) == (True, True)
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_full_disk_on_close_raises_an_error_and_leaves_no_file(name: str, tmp_path: Path) -> None:
    """The rest in the buffer cannot be written when the file is closed."""
    with little_room(), pytest.raises(UsageError):
        write(tmp_path / name, os.urandom(2 * ROOM_BYTES))
    assert list(tmp_path.iterdir()) == []


def test_interrupted_write_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "trace.json.gz", b"half", KeyboardInterrupt())
    assert list(tmp_path.iterdir()) == []


def test_unwritable_path_raises_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        write(tmp_path / "nowhere" / "trace.json", b"no such folder")
    with pytest.raises(UsageError):
        write(tmp_path, b"a folder has the name")
    assert list(tmp_path.iterdir()) == []


def test_path_that_is_not_a_regular_file_is_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(path := tmp_path / "fifo")
    with pytest.raises(UsageError, match="not a regular file"):
        write(path, b"x")
    assert path.is_fifo()
