"""Old spools are deleted only after they are stored."""

import errno
import itertools
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import telemetry
from telemetry.agent.host import DAY_NS, sweep
from telemetry.agent.tail import RankTail
from telemetry.files.private_files import Folder
from telemetry.record.clocks.interface import Anchor, measure_anchor
from telemetry.topology import Topology


def after(*, monotonic_days: float, wall_days: float) -> Anchor:
    """Readings of the two clocks the given number of days from now."""
    now = measure_anchor()
    return Anchor(
        monotonic_ns=now.monotonic_ns + round(monotonic_days * DAY_NS), wall_ns=now.wall_ns + round(wall_days * DAY_NS)
    )


LATER = after(monotonic_days=15, wall_days=15)

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


def test_old_stored_rank_folder_is_deleted_with_its_run_folder(tmp_path: Path) -> None:
    folder = record(tmp_path)
    (folder.parent / "hosts").mkdir()
    (folder.parent / "agent.log").touch()
    ship(folder)
    assert sweep(tmp_path, now=LATER) == [folder]
    assert not list(tmp_path.iterdir())


def test_old_folder_of_a_killed_rank_is_deleted_with_its_last_segment(tmp_path: Path) -> None:
    ran = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False, timeout=60)
    assert ran.returncode == -signal.SIGKILL
    folder = tmp_path / "run" / "0" / "rank-00000"
    ship(folder)
    assert list(folder.glob("*.rec"))
    assert sweep(tmp_path, now=LATER) == [folder]


def test_young_rank_folder_is_kept(tmp_path: Path) -> None:
    folder = record(tmp_path)
    ship(folder)
    assert sweep(tmp_path, now=after(monotonic_days=13, wall_days=13)) == []
    assert folder.exists()


def test_age_of_a_rank_folder_follows_the_monotonic_clock_when_the_wall_clock_is_wrong(tmp_path: Path) -> None:
    """The rank may restart and continue its sequence numbers."""
    folder = record(tmp_path)
    ship(folder)
    assert sweep(tmp_path, now=after(monotonic_days=0, wall_days=40)) == []
    assert sweep(tmp_path, now=after(monotonic_days=15, wall_days=-40)) == [folder]


def test_age_of_a_rank_folder_from_another_boot_follows_the_wall_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = record(tmp_path)
    ship(folder)
    monkeypatch.setattr("telemetry.agent.host.is_of_this_boot", lambda _: False)
    assert sweep(tmp_path, now=after(monotonic_days=0, wall_days=13)) == []
    assert sweep(tmp_path, now=after(monotonic_days=0, wall_days=15)) == [folder]


def test_unacknowledged_rank_folder_is_kept(tmp_path: Path) -> None:
    record(tmp_path)
    assert sweep(tmp_path, now=LATER) == []


def test_old_folder_of_a_living_rank_is_kept(tmp_path: Path) -> None:
    ship(record(tmp_path, end=False))
    assert sweep(tmp_path, now=LATER) == []
    telemetry.stop()


@pytest.mark.parametrize("spoiled", ["meta.json", "state"])
def test_folder_without_meta_json_or_state_page_is_kept(tmp_path: Path, spoiled: str) -> None:
    folder = record(tmp_path)
    ship(folder)
    (folder / spoiled).unlink()
    (tmp_path / "photos" / "2").mkdir(parents=True)
    made_ahead = shutil.ignore_patterns("*.new")
    shutil.copytree(folder, tmp_path / "photos" / "2" / "rank-00000", ignore=made_ahead)
    assert sweep(tmp_path, now=LATER) == []
    assert os.listdir(tmp_path / "photos" / "2")


@pytest.mark.parametrize("in_reverse", [False, True])
def test_the_rest_of_a_folder_that_was_deleted_in_part_is_deleted_by_the_next_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_reverse: bool
) -> None:
    folder = record(tmp_path)
    for name in ("evidence/stack", "profile/trace"):
        (folder / name).parent.mkdir()
        (folder / name).touch()
    ship(folder)
    names = Folder.names
    with monkeypatch.context() as patched:
        patched.setattr(Folder, "names", lambda folder: sorted(names(folder), reverse=in_reverse))
        patched.setattr(Folder, "remove", failing_after(2))
        assert sweep(tmp_path, now=LATER) == []
    assert folder.exists()
    assert sweep(tmp_path, now=LATER) == [folder]
    assert not list(tmp_path.iterdir())


def failing_after(number: int) -> Callable[[Folder, str], None]:
    """``Folder.remove`` that deletes this number of files and then fails, like a disk."""
    remove, removed = Folder.remove, itertools.count()

    def remove_some(folder: Folder, name: str) -> None:
        if next(removed) >= number:
            raise OSError(errno.EIO, "Input/output error", name)
        remove(folder, name)

    return remove_some
