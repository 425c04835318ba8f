"""`rankscope run`: the command of the user is itself, except for the variables."""

import json
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from telemetry.files.access import be_private
from telemetry.settings import RecordingSettings
from tests.deadline import until
from tests.scenarios.command import rankscope
from ui.cli.foreground import NOT_STARTED, run_in_foreground

NO_COLLECTOR = "http://127.0.0.1:9"
TELL = "import json, os, sys; print(json.dumps([dict(os.environ), sys.argv[1:]])); sys.exit(7)"
COUNT = """
import pathlib, signal, sys
folder = pathlib.Path(sys.argv[1])
signal.signal(signal.SIGUSR1, lambda *_: (folder / "told").touch())
signal.signal(signal.SIGTERM, lambda *_: ((folder / "ended").touch(), sys.exit(5)))
(folder / "ready").touch(0o666)
while True:
    signal.pause()
"""


def test_status_and_arguments_are_those_of_the_command_and_the_variables_ours() -> None:
    command = (sys.executable, "-c", TELL, "--run", "x")
    answer = rankscope("run", "--run", "mine", "--collector", NO_COLLECTOR, "--", *command)
    assert answer.status == 7, answer.error
    environment, arguments = json.loads(answer.out)
    assert arguments == ["--run", "x"]
    assert environment["RANKSCOPE"] == "1"
    settings = RecordingSettings.from_environment(environment)
    assert (settings.run_id, settings.collector) == ("mine", NO_COLLECTOR)
    assert "no rank was traced" in answer.error


@pytest.mark.parametrize(
    ("words", "variables", "said"),
    [
        (("no-such-program",), {}, "no program 'no-such-program'"),
        (("true",), {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}, "torch would not load rankscope"),
        (("--collector", "banana", "true"), {}, "not the address of a collector"),
    ],
)
def test_what_cannot_be_traced_is_not_started(words: tuple[str, ...], variables: dict[str, str], said: str) -> None:
    answer = rankscope("run", *words, **variables)
    assert answer.status == 2
    assert said in answer.error
    assert "hint: " in answer.error


def test_a_program_that_vanished_and_one_that_a_signal_ended_have_the_status_of_a_shell() -> None:
    assert run_in_foreground(["/no/such/program"], os.environ) == NOT_STARTED
    assert run_in_foreground(["sh", "-c", "kill -KILL $$"], os.environ) == 128 + signal.SIGKILL


def _run(folder: Path) -> None:
    os.umask(0o027)
    be_private()
    sys.exit(run_in_foreground([sys.executable, "-c", COUNT, str(folder)], os.environ))


@contextmanager
def running(folder: Path) -> Iterator[BaseProcess]:
    """The command in a process of its own, once its program is ready."""
    process = multiprocessing.get_context("fork").Process(target=_run, args=(folder,))
    process.start()
    try:
        until((folder / "ready").exists, what="the program")
        yield process
    finally:
        process.kill()
        process.join()


def test_a_signal_reaches_the_program_which_decides_how_it_ends(tmp_path: Path) -> None:
    with running(tmp_path) as process:
        assert process.pid is not None
        os.kill(process.pid, signal.SIGUSR1)
        until((tmp_path / "told").exists, what="the first signal")
        assert (tmp_path / "ready").stat().st_mode & 0o777 == 0o640  # the umask is that of the user
        os.kill(process.pid, signal.SIGTERM)
        process.join(30)
        assert process.exitcode == 5


def test_the_program_ends_with_a_command_that_is_killed(tmp_path: Path) -> None:
    with running(tmp_path) as process:
        process.kill()
        until((tmp_path / "ended").exists, what="the end of the program")
