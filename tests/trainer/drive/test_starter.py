"""The starter of a job keeps the address of the driver, and forwards signals."""

import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from telemetry.collector.connections import BoundedListener
from telemetry.errors import UnreadableError, UsageError
from telemetry.files.private_files import make_folder
from tests.deadline import until
from tests.trainer.jobs import small_config
from trainer.drive import local
from trainer.drive.driver import LOOPBACK, open_driver_place
from trainer.drive.folder import DECISIONS, DRIVER, LOCK, STATE, DriverPlace, JobFile, JobFolder, held_lock
from trainer.drive.settings import DriveConfig
from trainer.run_options import RunOptions

STATUS = 7


@pytest.fixture
def folder(tmp_path: Path) -> JobFolder:
    found = JobFolder(tmp_path / "job")
    found.make()
    return found


@contextmanager
def starter_of(folder: JobFolder) -> Iterator[local.Starter]:
    listener, _ = open_driver_place(folder, LOOPBACK)
    with held_lock(folder.path) as lock, listener:
        assert lock is not None
        yield local.Starter(job_of(folder, LOOPBACK), lock, listener, None)


def job_of(folder: JobFolder, listen: str) -> JobFile:
    """A job without executors on this machine."""
    options = RunOptions(out=folder.out, run_id="run")
    return JobFile(train=small_config(dp=2), options=options, drive=DriveConfig(num_nodes=1, listen=listen))


def test_signal_before_the_driver_is_ready_still_ends_the_job(
    folder: JobFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_driver(out: Path, listener: BoundedListener) -> int:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        signal.signal(signal.SIGTERM, lambda *_: None)
        return STATUS if signal.sigtimedwait({signal.SIGTERM}, 30) else 1

    monkeypatch.setattr(local, "run_driver", run_driver)
    with starter_of(folder) as starter:
        starter.interrupt(signal.SIGTERM)
        found: list[int | None] = []
        until(lambda: found.append(starter.look_after()) or found[-1] is not None, what="the end of the driver")
    assert found[-1] == STATUS


def test_start_of_the_driver_is_retried_when_it_fails(
    folder: JobFolder, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    fork, failed = os.fork, list[bool]()

    def fork_later() -> int:
        if not failed:
            failed.append(True)
            raise BlockingIOError("too many processes")
        return fork()

    monkeypatch.setattr(local, "run_driver", lambda *_: STATUS)
    monkeypatch.setattr(os, "fork", fork_later)
    with starter_of(folder) as starter:
        found: list[int | None] = []
        until(lambda: found.append(starter.look_after()) or found[-1] is not None, what="the end of the driver")
    assert found[-1] == STATUS
    assert capfd.readouterr().err.count("cannot start the driver: too many processes") == 1


def test_starter_raises_an_error_when_the_job_folder_is_deleted(folder: JobFolder) -> None:
    with starter_of(folder) as starter:
        shutil.rmtree(folder.out)
        with pytest.raises(UsageError, match=f"the folder {folder.out} was deleted while its job ran"):
            starter.look_after()


def test_restarted_driver_keeps_its_address_and_token(folder: JobFolder) -> None:
    first, place = open_driver_place(folder, LOOPBACK)
    first.close()
    second, again = open_driver_place(folder, LOOPBACK)
    second.close()
    assert again == place == folder.read(DRIVER, DriverPlace)


def test_address_and_token_change_if_another_program_uses_the_address(folder: JobFolder) -> None:
    other, earlier = open_driver_place(folder, LOOPBACK)
    with other:
        listener, place = open_driver_place(folder, LOOPBACK)
        listener.close()
    assert place.url != earlier.url
    assert place.token != earlier.token
    assert folder.read(DRIVER, DriverPlace) == place


def test_second_command_for_a_driven_job_is_rejected_and_keeps_its_address(folder: JobFolder) -> None:
    with starter_of(folder):
        place = folder.read(DRIVER, DriverPlace)
        with pytest.raises(UsageError, match="another process drives"):
            local.drive_here(job_of(folder, "127.0.0.2"))
        assert folder.read(DRIVER, DriverPlace) == place


def test_a_job_with_an_unreadable_state_starts_no_process(folder: JobFolder) -> None:
    folder.write_text(STATE, "garbage")
    with pytest.raises(UnreadableError) as error:
        local.drive_here(job_of(folder, LOOPBACK))
    assert "hint" not in error.value.message
    assert folder.read(DRIVER, DriverPlace) is None


def test_error_for_a_lock_that_cannot_be_opened_contains_its_path(folder: JobFolder) -> None:
    (folder.path / LOCK).symlink_to("/dev/null")
    with pytest.raises(OSError, match="not a regular file") as error, held_lock(folder.path):
        raise AssertionError("it is not held")
    assert error.value.filename == str(folder.path / LOCK)


@pytest.mark.parametrize("place", [f"nodes/node-0/{LOCK}", "nodes/node-0", "nodes", DECISIONS, DRIVER, LOCK])
def test_a_pipe_in_place_of_a_file_of_the_job_is_reported_before_a_process_starts(
    folder: JobFolder, place: str
) -> None:
    path = folder.path / place
    with make_folder(path.parent):
        os.mkfifo(path)
    before = psutil.Process().children()
    with pytest.raises((OSError, UsageError), match=path.name):
        local.drive_here(job_of(folder, ""))
    started = [child for child in psutil.Process().children() if child not in before]
    assert not started


def test_executor_that_cannot_be_started_does_not_stop_the_driver(
    folder: JobFolder, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(local, "EXECUTOR_EVERY_S", 0.0)
    monkeypatch.setattr(local, "run_driver", lambda *_: time.sleep(1) or STATUS)
    listener, _ = open_driver_place(folder, LOOPBACK)
    (folder.path / "nodes").touch()
    with held_lock(folder.path) as lock, listener:
        assert lock is not None
        starter = local.Starter(job_of(folder, ""), lock, listener, None)
        found: list[int | None] = []
        until(lambda: found.append(starter.look_after()) or found[-1] is not None, what="the end of the driver")
    assert found[-1] == STATUS
    assert capfd.readouterr().err.count("cannot start the executor of node-0: ") == 1
