"""The command as a whole: each subcommand is there, and loads what it needs alone."""

import subprocess
import sys
from importlib import metadata
from typing import Any

from ui.cli.main import COMMANDS, load_command

SAID: dict[str, Any] = {"capture_output": True, "text": True, "check": False}
CRASH = """
from ui.cli import main as cli
from ui.cli import runs

def crash(store: str = "") -> None:
    raise RuntimeError("our mistake \\x1b[2J")

runs.runs = crash
cli.main()
"""

ASK = """
import sys
from typer.testing import CliRunner
from ui.cli.main import app
answer = CliRunner().invoke(app, ["runs", "--help"])
assert answer.exit_code == 0, answer.output
print(sorted({"torch", "fastapi", "chdb", "dash", "pandas", "opentelemetry"} & sys.modules.keys()))
"""


def test_the_list_of_commands_says_what_each_says_of_itself() -> None:
    for name, command in COMMANDS.items():
        words = load_command(name).help
        assert words.startswith(command.help.rstrip(".")), name


def test_the_version_is_that_of_the_package_and_needs_nothing_heavy() -> None:
    answer = subprocess.run([sys.executable, "-X", "importtime", "-m", "ui.cli", "--version"], **SAID)
    assert (answer.returncode, answer.stdout) == (0, f"rankscope {metadata.version('rankscope')}\n")
    loaded = {line.rpartition("|")[2].strip() for line in answer.stderr.splitlines()}
    assert not loaded & {"numpy", "telemetry", "torch", "pyarrow"}


def test_a_defect_of_ours_shows_a_printable_traceback_and_does_not_end_with_1() -> None:
    answer = subprocess.run([sys.executable, "-c", CRASH, "runs"], **SAID)
    assert answer.returncode == 70
    assert answer.stderr.startswith("Traceback (most recent call last):\n")
    assert "RuntimeError: our mistake \\x1b[2J\n" in answer.stderr


def test_a_command_does_not_wait_for_what_others_need() -> None:
    answer = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


def test_a_name_that_was_mistyped_is_put_right() -> None:
    answer = subprocess.run([sys.executable, "-m", "ui.cli", "diagnoze"], capture_output=True, text=True, check=False)
    assert answer.returncode == 2
    assert "Did you mean 'diagnose'?" in answer.stderr
