"""The systemd units start existing commands with known options, and contain no secret."""

import re
import shlex
import shutil
import subprocess
from dataclasses import fields
from pathlib import Path

import pytest

from telemetry.agent.settings import parse_settings
from tests.deploy.compose_file import DEPLOY
from ui.cli.commands.collect import CollectOptions

UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
PROGRAM = "/opt/rankscope/bin/rankscope"
each_unit = pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)


def words_of(unit: Path) -> list[str]:
    """The command that a unit starts, without the program."""
    (command,) = re.findall(r"^ExecStart=(.+)$", unit.read_text(), re.M)
    program, *words = shlex.split(command)
    assert program == PROGRAM
    return words


def test_agent_accepts_the_command_line_of_its_unit() -> None:
    command, *arguments = words_of(DEPLOY / "systemd/rankscope-agent.service")
    settings = parse_settings(f"rankscope {command}", arguments, collector="https://collector.example:8719")
    assert command == "agent"
    assert settings.spool == Path("/var/spool/rankscope")
    assert settings.appear_s == 86400


def test_collector_unit_uses_only_known_options_and_no_host() -> None:
    command, *arguments = words_of(DEPLOY / "systemd/rankscope-collector.service")
    known = {f"--{name.replace('_', '-')}" for name in [field.name for field in fields(CollectOptions)]}
    assert command == "collect"
    assert {word for word in arguments if word.startswith("--")} <= known
    assert "--host" not in arguments


@each_unit
def test_unit_restarts_limits_memory_and_contains_no_token(unit: Path) -> None:
    text = unit.read_text()
    assert "Restart=always" in text
    assert re.search(r"^MemoryMax=\d+G$", text, re.M)
    assert re.search(r"^NoNewPrivileges=yes$", text, re.M)
    assert not re.search(r"RANKSCOPE_\w*TOKEN=", text)


@each_unit
def test_systemd_analyze_accepts_the_unit(unit: Path, tmp_path: Path) -> None:
    verifier = shutil.which("systemd-analyze")
    if verifier is None:
        pytest.skip("systemd-analyze is not installed: this machine has no systemd")
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace(PROGRAM, "/bin/true"))
    done = subprocess.run([verifier, "verify", str(copy)], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
