"""`rankscope doctor` names the folder that ranks write into: `diagnose --spool` wants it."""

import tempfile
from pathlib import Path

import pytest

from telemetry.settings import spool_of
from ui.cli.doctor import fitness


def room() -> str:
    return next(one.found for one in fitness() if one.name == "room for rank files")


def test_the_folder_that_the_environment_names_is_told_before_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = tmp_path / "not" / "yet"
    monkeypatch.setenv("RANKSCOPE_SPOOL", str(spool))
    assert room().endswith(f" GiB free in {spool}")
    assert not spool.parent.exists()


def test_where_nobody_says_it_is_this_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANKSCOPE_SPOOL", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert room().endswith(f" GiB free in {spool_of()}")
    assert spool_of().parent.parent == tmp_path
