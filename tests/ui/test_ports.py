"""Ports of collectors: jobs that start at the same time on one host never share one."""

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.integration.processes import free_port
from trainer.drive import local
from trainer.drive.folder import JOB, JobFile, JobFolder
from ui.cli.commands.drive import drive_app
from ui.cli.ports import claimed_port, reclaimed_port

HERE, THERE = Path("here"), Path("there")


def test_port_is_claimed_before_a_collector_uses_it_and_released_when_the_job_ends() -> None:
    wanted = free_port()
    with claimed_port(wanted, HERE) as first, claimed_port(wanted, THERE) as second:
        assert first == wanted
        assert second != wanted
    with claimed_port(wanted, THERE) as third:
        assert third == wanted


def test_a_port_of_another_program_is_not_used() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        wanted = taken.getsockname()[1]
        with claimed_port(wanted, HERE) as port:
            assert port != wanted


def test_nodes_that_outlive_their_command_keep_the_port_for_the_next_command_of_the_same_job() -> None:
    wanted = free_port()
    with ExitStack() as nodes:
        with claimed_port(wanted, HERE):
            nodes.enter_context(forked())
        with claimed_port(wanted, THERE) as other, reclaimed_port(wanted, THERE) as later:
            assert wanted not in (other, later)
        with reclaimed_port(wanted, HERE) as same:
            assert same == wanted
    with reclaimed_port(wanted, THERE) as port:
        assert port == wanted


def test_two_jobs_that_start_at_the_same_time_have_collectors_on_two_ports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second command runs while the first one is about to start its collector."""
    addresses: dict[str, str | None] = {}

    def drive_here(job: JobFile, *_: object) -> int:
        addresses[job.options.out.name] = job.options.collector
        JobFolder(job.options.out).write(JOB, job)
        if len(addresses) == 1:
            start("second")
        return 0

    def start(name: str) -> None:
        answer = CliRunner().invoke(drive_app, ["--recipe", "tiny_cpu", "--steps", "5", "--out", str(tmp_path / name)])
        assert answer.exit_code == 0, answer.output

    monkeypatch.setattr(local, "drive_here", drive_here)
    start("first")
    first, second = addresses["first"], addresses["second"]
    assert first != second
    start("second")  # no job holds its port now, so it keeps the address
    assert addresses["second"] == second


@contextmanager
def forked() -> Iterator[None]:
    """A child process that holds the open files of this process until the block ends."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(writing)
        os.read(reading, 1)
        os._exit(0)
    try:
        yield
    finally:
        os.close(writing)
        os.close(reading)
        os.waitpid(pid, 0)
