"""`rankscope doctor` checks this machine, and names the folder that ranks write into: `diagnose --spool` wants it."""

import tempfile
from pathlib import Path

import pytest

from telemetry.settings import spool_of
from ui.cli.doctor import Check, fitness


def checked(name: str) -> Check:
    return next(check for check in fitness() if check.name == name)


def room() -> str:
    return checked("room for rank files").found


def test_a_machine_without_a_gpu_is_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    check = checked("NVIDIA driver")
    assert (check.fit, check.found) == (True, "none: ranks run on the CPU")


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
