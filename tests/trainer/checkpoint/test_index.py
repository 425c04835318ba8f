"""torch's index of shards is read without running code."""

import os
import pickle
from pathlib import Path

import pytest

from telemetry.errors import UnreadableError
from telemetry.files.private_files import open_folder
from trainer.checkpoint.folder import INDEX_NAME
from trainer.checkpoint.shards import CheckedReader


class Bomb:
    """Makes a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> object:
        return os.mkdir, (str(self.path),)


def read(folder: Path) -> CheckedReader:
    with open_folder(folder) as opened:
        return CheckedReader(opened)


def test_an_index_that_runs_code_is_refused(tmp_path: Path) -> None:
    (tmp_path / INDEX_NAME).write_bytes(pickle.dumps(Bomb(tmp_path / "exploded")))
    with pytest.raises(UnreadableError, match=r"it needs posix\.mkdir"):
        read(tmp_path)
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize("content", [b"", b"garbage", pickle.dumps({"a": 1})], ids=["empty", "garbage", "no index"])
def test_invalid_index_raises_an_unreadable_error(content: bytes, tmp_path: Path) -> None:
    (tmp_path / INDEX_NAME).write_bytes(content)
    with pytest.raises(UnreadableError, match="cannot read"):
        read(tmp_path)
