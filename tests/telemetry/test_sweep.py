"""Old spools are deleted once they are stored, and only then."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import telemetry
from telemetry.agent.sweep import sweep
from telemetry.agent.tail import RankTail
from telemetry.topology import Topology

LATER_S = time.time() + 15 * 86_400

KILLED = """
import os, signal, sys
import telemetry
from telemetry.topology import Topology
telemetry.start("run", topology=Topology(), rank=0, local_rank=0, attempt=0, spool=sys.argv[1], agent=False)
with telemetry.span("optimizer"):
    pass
os.kill(os.getpid(), signal.SIGKILL)
"""


def record(spool: Path, *, end: bool = True) -> Path:
    session = telemetry.start("run", topology=Topology(), rank=0, local_rank=0, attempt=0, spool=spool, agent=False)
    assert session.folder is not None
    with telemetry.span("optimizer"):
        pass
    if end:
        telemetry.stop()
    return session.folder


def ship(folder: Path) -> None:
    tail = RankTail(folder)
    while chunk := tail.read():
        tail.shipped(chunk)


def test_what_is_stored_and_old_is_deleted_with_its_run(tmp_path: Path) -> None:
    folder = record(tmp_path)
    (folder.parent / "hosts").mkdir()
    ship(folder)
    assert sweep(tmp_path, now_s=LATER_S) == [folder]
    assert not list(tmp_path.iterdir())


def test_a_killed_rank_s_last_segment_goes_too(tmp_path: Path) -> None:
    ran = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False, timeout=60)
    assert ran.returncode == -signal.SIGKILL
    folder = tmp_path / "run" / "0" / "rank-00000"
    ship(folder)
    assert list(folder.glob("*.rec"))
    assert sweep(tmp_path, now_s=LATER_S) == [folder]


def test_what_is_young_stays(tmp_path: Path) -> None:
    folder = record(tmp_path)
    ship(folder)
    assert sweep(tmp_path, now_s=LATER_S - 2 * 86_400) == []
    assert folder.exists()


def test_what_nobody_has_acknowledged_stays(tmp_path: Path) -> None:
    record(tmp_path)
    assert sweep(tmp_path, now_s=LATER_S) == []


def test_a_rank_that_lives_stays_however_long_it_is_silent(tmp_path: Path) -> None:
    ship(record(tmp_path, end=False))
    assert sweep(tmp_path, now_s=LATER_S) == []
    telemetry.stop()


@pytest.mark.parametrize("spoiled", ["meta.json", "state"])
def test_what_is_no_rank_s_folder_stays(tmp_path: Path, spoiled: str) -> None:
    folder = record(tmp_path)
    ship(folder)
    (folder / spoiled).unlink()
    (tmp_path / "photos" / "2").mkdir(parents=True)
    made_ahead = shutil.ignore_patterns("*.new")
    shutil.copytree(folder, tmp_path / "photos" / "2" / "rank-00000", ignore=made_ahead)
    assert sweep(tmp_path, now_s=LATER_S) == []
    assert os.listdir(tmp_path / "photos" / "2")
