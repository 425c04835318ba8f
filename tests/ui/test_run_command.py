"""`rankscope run` runs the command of the user unchanged, except for environment variables."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from telemetry.errors import UnreachableError
from telemetry.files.access import be_private
from telemetry.settings import RecordingSettings
from tests.deadline import until
from tests.scenarios.command import rankscope
from ui.cli.demonstration import RANKSCOPE, serving
from ui.cli.foreground import NOT_STARTED, run_in_foreground

NO_COLLECTOR = "http://127.0.0.1:9"
TELL = "import json, os, sys; print(json.dumps([dict(os.environ), sys.argv[1:]])); sys.exit(7)"
INPUTS = """
import json, os, psutil
siblings = [each.pid for each in psutil.Process().parent().children() if each.pid != os.getpid()]
print(json.dumps([os.readlink(f"/proc/{pid}/fd/0") for pid in siblings]))
"""
"""Prints the input of the other children of its parent: the collector."""
RECORD = "import telemetry; telemetry.start(agent=False); telemetry.stop()"
COUNT = """
import pathlib, signal, sys
folder = pathlib.Path(sys.argv[1])
signal.signal(signal.SIGUSR1, lambda *_: (folder / "told").touch())
signal.signal(signal.SIGTERM, lambda *_: ((folder / "ended").touch(), sys.exit(5)))
(folder / "ready").touch(0o666)
while True:
    signal.pause()
"""


def test_run_keeps_status_and_arguments_of_the_command_and_sets_our_variables() -> None:
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
        (("true",), {"RANKSCOPE_DISABLED": "1"}, "nothing would be recorded"),
        (("--collector", "banana", "true"), {}, "not the address of a collector"),
    ],
)
def test_command_that_cannot_be_traced_is_not_started(
    words: tuple[str, ...], variables: dict[str, str], said: str
) -> None:
    answer = rankscope("run", *words, **variables)
    assert answer.status == 2
    assert said in answer.error
    assert "hint: " in answer.error


def test_missing_and_killed_programs_have_the_exit_status_of_a_shell() -> None:
    assert run_in_foreground(["/no/such/program"], os.environ) == NOT_STARTED
    assert run_in_foreground(["sh", "-c", "kill -KILL $$"], os.environ) == 128 + signal.SIGKILL


def _run(folder: Path) -> None:
    os.umask(0o027)
    be_private()
    sys.exit(run_in_foreground([sys.executable, "-c", COUNT, str(folder)], os.environ))


@contextmanager
def running(folder: Path) -> Iterator[BaseProcess]:
    """The command in a separate process, after its program is ready."""
    process = multiprocessing.get_context("fork").Process(target=_run, args=(folder,))
    process.start()
    try:
        until((folder / "ready").exists, what="the program")
        yield process
    finally:
        process.kill()
        process.join()


def test_signal_reaches_the_program_and_its_exit_status_is_kept(tmp_path: Path) -> None:
    with running(tmp_path) as process:
        assert process.pid is not None
        os.kill(process.pid, signal.SIGUSR1)
        until((tmp_path / "told").exists, what="the first signal")
        assert (tmp_path / "ready").stat().st_mode & 0o777 == 0o640  # the umask is that of the user
        os.kill(process.pid, signal.SIGTERM)
        process.join(30)
        assert process.exitcode == 5


def test_program_ends_when_the_run_command_is_killed(tmp_path: Path) -> None:
    with running(tmp_path) as process:
        process.kill()
        until((tmp_path / "ended").exists, what="the end of the program")


def test_a_password_of_the_collector_is_not_printed(tmp_path: Path) -> None:
    command = (sys.executable, "-c", RECORD)
    collector = "http://me:secret@127.0.0.1:9"
    answer = rankscope("run", "--run", "mine", "--collector", collector, "--", *command, RANKSCOPE_SPOOL=str(tmp_path))
    assert "to diagnose: rankscope diagnose mine --store http://me@127.0.0.1:9" in answer.error
    assert "secret" not in answer.out + answer.error


def test_the_reason_is_shown_if_the_collector_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "store").touch()
    with pytest.raises(UnreachableError, match=r"did not start: .*store"), serving(tmp_path):
        raise AssertionError("it has no folder for its store")


def test_output_folder_that_is_a_link_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "rankscope-out").symlink_to("elsewhere")
    answer = rankscope("run", "--", "true")
    assert answer.status == 2
    assert "rankscope-out is a link" in answer.error
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_link_in_place_of_the_log_of_the_collector_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "collector.log").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match=r"collector\.log"), serving(tmp_path):
        pass
    assert not (tmp_path / "elsewhere").exists()


def test_only_the_command_receives_standard_input(tmp_path: Path) -> None:
    """A writer to the command notices its end, although the collector still runs."""
    command = [*RANKSCOPE, "run", "--out", str(tmp_path), "--", sys.executable, "-c", INPUTS]
    answer = subprocess.run(command, input="", capture_output=True, text=True, check=True)
    assert json.loads(answer.stdout) == [os.devnull]


def _run_with_ignored_ends() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    sys.exit(run_in_foreground(["sh", "-c", "exit 7"], os.environ))


def test_exit_status_is_kept_when_the_parent_ignores_sigchld() -> None:
    process = multiprocessing.get_context("fork").Process(target=_run_with_ignored_ends)
    process.start()
    try:
        process.join(30)
        assert process.exitcode == 7
    finally:
        process.kill()
