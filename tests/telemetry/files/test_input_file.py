"""A file that the user names is read without waiting and within a limit, or refused."""

import os
import socket
from pathlib import Path

import pytest

from telemetry.files.access import open_input, read_input


def test_file_is_read_up_to_the_size_limit_and_rejected_above_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"four")
    assert read_input(path, max_bytes=4) == b"four"
    with pytest.raises(OSError, match="Larger than 3 bytes"):
        read_input(path, max_bytes=3)


def test_path_that_is_not_a_regular_file_is_rejected_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        for name in ("fifo", "link", "socket", "missing"):
            with pytest.raises(OSError) as refused:  # noqa: PT011 - the path is what matters
                open_input(tmp_path / name)
            assert str(refused.value.filename) == str(tmp_path / name)
    with pytest.raises(IsADirectoryError):
        open_input(tmp_path)
