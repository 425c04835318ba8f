"""A driven job whose collector cannot start, or dies."""

import socket
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from telemetry.errors import UnreachableError
from tests.trainer.jobs import small_config
from trainer.drive import local
from trainer.drive.folder import DRIVER, JOB, DriverPlace, JobFile, JobFolder
from trainer.drive.settings import DriveConfig
from trainer.run_options import RunOptions
from ui.cli import own_collector
from ui.cli.own_collector import OwnCollector

PLACE = DriverPlace(url="http://127.0.0.1:9", token="t" * 64)


def job_of(out: Path, port: int) -> JobFile:
    options = RunOptions(out=out, run_id="run", collector=f"http://127.0.0.1:{port}")
    return JobFile(train=small_config(dp=2), options=options, drive=DriveConfig(num_nodes=1))


def test_job_ends_without_processes_and_job_files_when_its_collector_cannot_start(tmp_path: Path) -> None:
    """Another program uses the port."""
    before = psutil.Process().children()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        job = job_of(tmp_path, taken.getsockname()[1])
        with pytest.raises(UnreachableError, match=r"the collector of the job cannot start: .*in use") as raised:
            local.drive_here(job, lambda place: own_collector.own_collector(tmp_path, job, place))
    assert "--no-own-collector" in raised.value.hint
    assert str(tmp_path / "logs" / "collector.log") in raised.value.hint
    assert psutil.Process().children() == before
    folder = JobFolder(tmp_path)
    assert folder.read(JOB, JobFile) is None
    assert folder.read(DRIVER, DriverPlace) is None
    written = {path.name: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}
    assert written == {"lock": b"", "decisions.jsonl": b""}


def test_failed_restart_of_the_collector_is_reported_once_and_retried_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError("too many processes")

    JobFolder(tmp_path).make()
    collector = OwnCollector(tmp_path, job_of(tmp_path, 9), PLACE)
    monkeypatch.setattr(subprocess, "Popen", refuse)
    collector.restart_if_dead()
    collector.restart_if_dead()
    assert capfd.readouterr().err.count("the collector cannot start: too many processes") == 1
    assert collector._restart_s > time.monotonic()
    collector.end()
