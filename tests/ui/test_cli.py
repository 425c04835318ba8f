"""The command as a whole: each subcommand is there, and loads what it needs alone."""

import subprocess
import sys

from typer.main import get_group

from ui.cli import COMMANDS, app

ASK = """
import sys
from typer.testing import CliRunner
from ui.cli import app
answer = CliRunner().invoke(app, ["runs", "--help"])
assert answer.exit_code == 0, answer.output
print(sorted({"torch", "fastapi", "chdb", "dash", "pandas", "opentelemetry"} & sys.modules.keys()))
"""


def test_every_command_has_a_line_of_help() -> None:
    commands = get_group(app).commands
    assert list(commands) == list(COMMANDS)
    assert all(commands[name].get_short_help_str() for name in commands)


def test_a_command_does_not_wait_for_what_others_need() -> None:
    answer = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


def test_a_name_that_was_mistyped_is_put_right() -> None:
    answer = subprocess.run([sys.executable, "-m", "ui.cli", "diagnoze"], capture_output=True, text=True, check=False)
    assert answer.returncode == 2
    assert "Did you mean 'diagnose'?" in answer.stderr
