"""Files that only their owner may use: modes, links, folders of other users."""

import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import telemetry
from telemetry.agent.samplers.interface import Event
from telemetry.errors import UnsafeFolderError, UsageError
from telemetry.evidence import journal
from telemetry.evidence.evidence import Evidence, keep
from telemetry.files.access import private_umask, rights_of
from telemetry.files.private_files import make_folder, open_folder
from telemetry.record.shipping_page import ShippingPage
from telemetry.settings import default_spool
from telemetry.stores.embedded import EmbeddedStore
from tests.each_case import each_case
from tests.integration.local_users import HOSTILE, as_user, shared_machine
from tests.parts import require_root
from tests.telemetry.recording import session


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def modes_below(folder: Path) -> dict[str, set[int]]:
    """Permission bits of all folders, files and sockets below ``folder``."""
    found: dict[str, set[int]] = {"folders": set(), "files": set()}
    for path in folder.rglob("*"):
        status = path.lstat()
        if not stat.S_ISLNK(status.st_mode):
            kind = "folders" if stat.S_ISDIR(status.st_mode) else "files"
            found[kind].add(stat.S_IMODE(status.st_mode))
    return found


def create_rank_and_agent_files(spool: Path) -> None:
    """Create every kind of file that a rank and its agent create."""
    with session(spool) as started:
        assert started.folder is not None
        ShippingPage(started.folder)
        keep(started.folder, [Evidence(rank=0, at_ns=1, kind="log", body="private")])
        journal.append(started.folder.parent, "host", [Event(at_ns=1, device="eth0", name="link-down", text="")])


ANY_UMASK = pytest.mark.parametrize("mask", [0o000, 0o022, 0o077, 0o277])


@ANY_UMASK
def test_rank_and_agent_files_are_private_under_any_umask(tmp_path: Path, mask: int) -> None:
    with umask(mask):
        create_rank_and_agent_files(tmp_path / "spool")
    assert modes_below(tmp_path) == {"folders": {0o700}, "files": {0o600}}


@ANY_UMASK
def test_group_may_read_files_when_rankscope_umask_allows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mask: int
) -> None:
    monkeypatch.setenv("RANKSCOPE_UMASK", "027")
    with umask(mask):
        create_rank_and_agent_files(tmp_path / "spool")
    found = modes_below(tmp_path)
    assert found["files"] == {0o640}
    assert found["folders"] - {0o700} == {0o750}  # 0700: the folder of the worker server's socket, if torch is loaded


def test_new_folder_inherits_the_setgid_bit_of_its_parent(tmp_path: Path) -> None:
    tmp_path.chmod(0o2750)
    with umask(0o277), make_folder(tmp_path / "new", below=1):
        pass
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o2700


def test_too_deeply_nested_folders_are_not_deleted(tmp_path: Path) -> None:
    nested = tmp_path.joinpath("rank", *["deeper"] * 300)
    nested.mkdir(parents=True)
    with open_folder(tmp_path) as folder, pytest.raises(OSError, match="nested too deeply"):
        folder.remove_folder("rank", with_content=True)
    assert nested.exists()


@each_case("text", ["000", "007", "020", "0777", "8", "-22", "private"])
def test_invalid_or_too_open_rankscope_umask_is_rejected(text: str) -> None:
    with pytest.raises(UsageError, match="RANKSCOPE_UMASK"):
        private_umask({"RANKSCOPE_UMASK": text})


@pytest.mark.parametrize("what", ["link", "pipe", "hard link", "folder"])
def test_only_a_regular_file_without_hard_links_is_opened(tmp_path: Path, what: str) -> None:
    real = tmp_path / "real"
    real.write_text("content")
    place = tmp_path / "place"
    make = {"link": place.symlink_to, "hard link": place.hardlink_to}.get(what)
    if make:
        make(real)
    elif what == "pipe":
        os.mkfifo(place)
    else:
        place.mkdir()
    with open_folder(tmp_path) as folder:
        for flags in (os.O_RDONLY, os.O_RDWR | os.O_CREAT):
            with pytest.raises(OSError, match=r"not a regular file|Is a directory") as error:
                folder.open("place", flags)
            assert error.value.filename == str(place)
        if what != "folder":
            folder.write("place", b"mine")
            assert folder.read("place", 10) == b"mine"
    assert real.read_text() == "content"


def test_symbolic_link_below_the_named_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "real" / "0").mkdir(parents=True)
    (tmp_path / "linked").symlink_to(tmp_path / "real")
    with pytest.raises(OSError, match=r"Not a directory|symbolic"), open_folder(tmp_path / "linked" / "0", below=2):
        pass
    with open_folder(tmp_path / "linked" / "0", below=1) as folder:
        assert folder.owner == os.geteuid()
    with pytest.raises(UnsafeFolderError, match="is a link"), make_folder(tmp_path / "linked" / "0", below=2):
        pass


@pytest.fixture
def shared_temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary folder of all users, as ``/tmp`` is."""
    require_root("a second user")
    with shared_machine() as machine:
        monkeypatch.setattr(tempfile, "tempdir", str(machine.spool))
        yield machine.spool


def start_without_a_spool() -> bool:
    try:
        return telemetry.start("run", rank=0, agent=False).recording
    finally:
        telemetry.stop()


@pytest.mark.parametrize("what", ["folder", "open folder", "link"])
def test_default_spool_created_by_another_user_is_refused_with_a_one_line_message(
    shared_temporary: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], what: str
) -> None:
    place = default_spool().parent
    if what == "link":
        as_user(HOSTILE, place.symlink_to, tmp_path)
    else:
        as_user(HOSTILE, place.mkdir)
    if what == "open folder":
        os.chown(place, os.geteuid(), -1)
        place.chmod(0o777)
    assert not start_without_a_spool()
    assert list(tmp_path.iterdir()) == []
    message, _, hint = capfd.readouterr().err.strip().partition("; hint: ")
    assert message.startswith("rankscope: not recording: ")
    assert str(place) in message
    assert hint
    assert "\n" not in hint


def test_a_store_in_the_folder_of_another_user_is_refused(shared_temporary: Path) -> None:
    place = shared_temporary / "store"
    as_user(HOSTILE, place.mkdir)
    with pytest.raises(UsageError, match=rf"{place} belongs to another user \(uid {HOSTILE}\)"):
        EmbeddedStore(place)
    assert list(place.iterdir()) == []


def test_no_other_user_can_hold_a_lock_that_a_rank_needs(shared_temporary: Path) -> None:
    assert start_without_a_spool()
    page = next(default_spool().rglob("state"))

    def hold() -> None:
        with pytest.raises(PermissionError), page.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH)

    as_user(HOSTILE, hold)
    assert start_without_a_spool()


def test_nested_rights_block_restores_the_rights_of_the_outer_block() -> None:
    require_root("works with the rights of another user")
    with shared_machine() as machine:
        new = machine.hostile_folder() / "new"
        with rights_of(HOSTILE):
            with rights_of(HOSTILE):
                pass
            new.touch()
        assert new.stat().st_uid == HOSTILE
