"""The command as a whole: every command has one shape, and loads only what it needs."""

import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from inspect import getclosurevars
from typing import Any, get_args, get_type_hints

import pytest
import typer

import rankscope
from diagnose.simulate import truth as fault_texts
from tests.docs.pages import ROOT
from trainer.faults import inject
from ui.cli.commands import demo
from ui.cli.commands.simulate import FAULT_KINDS
from ui.cli.main import COMMANDS, load_command

SAID: dict[str, Any] = {"capture_output": True, "text": True, "check": False}
CRASH = """
from ui.cli import main as cli
from ui.cli import runs

def crash(options) -> int:
    raise RuntimeError("our mistake \\x1b[2J")

runs.runs = crash
cli.main()
"""
ASK_EACH = """
import sys
from typer.testing import CliRunner
from ui.cli.main import COMMANDS, app, load_command

def words(name, command):
    yield [name]
    for below in getattr(command, "commands", {}):
        yield [name, below]

HEAVY = {"numpy", "pyarrow", "torch", "dash", "httpx", "fastapi", "chdb", "psutil", "plotly", "opentelemetry"}
for asked in [[], *(line for name in COMMANDS for line in words(name, load_command(name)))]:
    answer = CliRunner().invoke(app, [*asked, "--help"])
    assert answer.exit_code == 0, answer.output
    print(" ".join(asked) + ":", *sorted(HEAVY & sys.modules.keys()))
"""
"""Pydantic is missing from the list: Typer itself loads it."""


def works() -> Iterator[tuple[type[Any], str]]:
    """Of every command: the record of its options, and the name of its work."""
    for subcommand in COMMANDS.values():
        module, _, attribute = subcommand.target.partition(":")
        target = getattr(import_module(module), attribute)
        below = target.registered_commands if isinstance(target, typer.Typer) else ()
        for callback in [info.callback for info in below if info.callback] or [target]:
            kept = getclosurevars(callback).nonlocals
            yield kept["options"], kept["work"]


def test_the_list_of_commands_says_what_each_says_of_itself() -> None:
    for name, command in COMMANDS.items():
        words = load_command(name).help
        assert words.startswith(command.help.rstrip(".")), name


@pytest.mark.parametrize(("options", "work"), list(works()), ids=str)
def test_the_work_of_a_command_takes_its_options_and_returns_the_exit_status(options: type[Any], work: str) -> None:
    module, _, function = work.partition(":")
    hints = get_type_hints(getattr(import_module(module), function))
    assert hints == {"options": options, "return": int}


def test_the_help_of_no_command_loads_what_its_work_needs() -> None:
    answer = subprocess.run([sys.executable, "-c", ASK_EACH], **SAID)
    assert answer.returncode == 0, answer.stderr
    lines = answer.stdout.splitlines()
    assert len(lines) > len(COMMANDS)
    assert all(line.endswith(":") for line in lines), lines


def test_the_help_names_every_fault_and_the_guide_every_choice_of_its_settings() -> None:
    assert tuple(fault_texts.KINDS) == FAULT_KINDS
    assert tuple(inject.KINDS) == demo.FAULT_KINDS
    described = (ROOT / "docs/guides/simulate.md").read_text().partition("## Faults in real training")[2]
    for kind, fault in inject.KINDS.items():
        (told,) = (line for line in described.splitlines() if line.startswith(f"| `{kind}:"))
        for name, annotation in get_type_hints(fault).items():
            choices = [choice for choice in get_args(annotation) if isinstance(choice, str)]
            assert f"{name}=" in told
            assert all(choice in told for choice in choices), (told, choices)


def test_the_version_is_that_of_the_package_and_needs_nothing_heavy() -> None:
    answer = subprocess.run([sys.executable, "-X", "importtime", "-m", "ui.cli", "--version"], **SAID)
    assert (answer.returncode, answer.stdout) == (0, f"rankscope {rankscope.__version__}\n")
    loaded = {line.rpartition("|")[2].strip() for line in answer.stderr.splitlines()}
    assert not loaded & {"numpy", "torch", "pyarrow"}


def test_a_defect_of_ours_shows_a_printable_traceback_and_does_not_end_with_1() -> None:
    answer = subprocess.run([sys.executable, "-c", CRASH, "runs"], **SAID)
    assert answer.returncode == 70
    assert answer.stderr.startswith("Traceback (most recent call last):\n")
    assert "RuntimeError: our mistake \\x1b[2J\n" in answer.stderr


def test_a_name_that_was_mistyped_is_put_right() -> None:
    answer = subprocess.run([sys.executable, "-m", "ui.cli", "diagnoze"], capture_output=True, text=True, check=False)
    assert answer.returncode == 2
    assert "Did you mean 'diagnose'?" in answer.stderr
