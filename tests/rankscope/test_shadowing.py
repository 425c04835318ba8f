"""Files and folders of the user that have the names of our packages, beside the script and in the working directory."""

import os
import subprocess
import sys
from pathlib import Path

from telemetry.process.child_process import HOME, child_environment, python_module
from telemetry.stores.queries import Runs
from tests.deadline import until
from tests.memory_store import memory_store
from tests.telemetry.served import collecting

TRAINING = """
import sys
import rankscope

rankscope.start("shadowed", spool=sys.argv[1], collector=sys.argv[2])
with rankscope.step(0), rankscope.span("forward-compute"):
    pass
rankscope.stop()
"""
NAMES_OF_OURS = ("telemetry", "diagnose", "trainer", "ui")
NAMES_OF_LIBRARIES = ("httpx", "psutil", "pyarrow")
"""What an agent imports and a rank does not."""


def hostile(folder: Path, *names: str) -> Path:
    """A folder with modules that fail when they are imported."""
    folder.mkdir()
    for name in names:
        (folder / f"{name}.py").write_text(f"raise SystemExit('{name} of the user was imported')\n")
    return folder


def python(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    command, environment = [sys.executable, *map(str, arguments)], {**os.environ, "PYTHONPATH": str(HOME)}
    return subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True, check=False, timeout=120)


def test_import_error_names_the_file_that_hides_the_recorder_in_one_line(tmp_path: Path) -> None:
    folder = hostile(tmp_path / "mine", "telemetry")
    (folder / "train.py").write_text(TRAINING)
    ended = python("train.py", cwd=folder)
    last = ended.stderr.splitlines()[-1]
    assert last == f"ImportError: {folder / 'telemetry.py'} hides the package telemetry of rankscope: rename it"


def test_import_error_names_the_folder_that_hides_the_recorder(tmp_path: Path) -> None:
    folder = hostile(tmp_path / "mine")
    (folder / "telemetry").mkdir()
    (folder / "telemetry" / "__init__.py").touch()
    (folder / "train.py").write_text(TRAINING)
    assert f"{folder / 'telemetry'} hides the package telemetry" in python("train.py", cwd=folder).stderr


def test_error_of_the_command_names_the_file_that_hides_one_of_its_packages(tmp_path: Path) -> None:
    folder = hostile(tmp_path / "mine", "ui")
    ended = python("-m", "rankscope", "runs", cwd=folder)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == f"error: {folder / 'ui.py'} hides the package ui of rankscope: rename it\n"


def test_training_and_agent_do_not_import_user_modules_with_names_of_our_packages(tmp_path: Path) -> None:
    scripts = hostile(tmp_path / "scripts", *NAMES_OF_OURS[1:], *NAMES_OF_LIBRARIES)
    (scripts / "train.py").write_text(TRAINING)
    work, spool = hostile(tmp_path / "work", *NAMES_OF_OURS, *NAMES_OF_LIBRARIES), tmp_path / "spool"
    with memory_store() as store, collecting(store) as client:
        ended = python(scripts / "train.py", spool, client.url, cwd=work)
        assert ended.returncode == 0, ended.stderr
        until(lambda: client.read(Runs()).num_rows, what="the run in the store")
        until(lambda: client.read(Runs())["last_step"].to_pylist() == [0], what="its step")
    assert "of the user" not in (spool / "shadowed" / "0" / "agent.log").read_text()


def test_child_process_of_a_command_imports_rankscope_modules_in_any_folder(tmp_path: Path) -> None:
    folder = hostile(tmp_path / "mine", *NAMES_OF_OURS)
    command = [*python_module("ui.cli"), "--version"]
    ended = subprocess.run(command, env=child_environment(), cwd=folder, capture_output=True, text=True, check=True)
    assert ended.stdout.startswith("rankscope ")
