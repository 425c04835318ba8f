"""The command as a whole: every command has one shape, and loads only what it needs."""

import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from inspect import getclosurevars
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
import typer
from typer.testing import CliRunner

import rankscope
from diagnose.findings import StepWindow
from diagnose.simulate import truth as fault_texts
from telemetry.errors import UnreachableError, UsageError
from telemetry.stores.queries import LAST_STEP
from telemetry.wire.client import CollectorClient
from tests.docs.pages import ROOT
from tests.each_case import each_case
from trainer.faults import inject
from ui.cli import demonstration
from ui.cli.commands import demo
from ui.cli.commands.simulate import FAULT_KINDS
from ui.cli.demonstration import FIRST_STEP_S, STALL_S, Outcome, _too_long
from ui.cli.diagnose import step_window
from ui.cli.main import COMMANDS, app, load_command

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
    """For every command: the class of its options, and the name of the function that does its work."""
    for subcommand in COMMANDS.values():
        module, _, attribute = subcommand.target.partition(":")
        target = getattr(import_module(module), attribute)
        below = target.registered_commands if isinstance(target, typer.Typer) else ()
        for callback in [info.callback for info in below if info.callback] or [target]:
            kept = getclosurevars(callback).nonlocals
            yield kept["options"], kept["work"]


def test_list_of_commands_shows_the_help_text_of_each_command() -> None:
    for name, command in COMMANDS.items():
        words = load_command(name).help
        assert words.startswith(command.help.rstrip(".")), name


@each_case(("options", "work"), list(works()))
def test_the_work_of_a_command_takes_its_options_and_returns_the_exit_status(options: type[Any], work: str) -> None:
    module, _, function = work.partition(":")
    hints = get_type_hints(getattr(import_module(module), function))
    assert hints == {"options": options, "return": int}


def test_help_of_every_command_loads_no_heavy_package() -> None:
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


def test_version_option_prints_the_package_version_and_loads_no_heavy_package() -> None:
    answer = subprocess.run([sys.executable, "-X", "importtime", "-m", "ui.cli", "--version"], **SAID)
    assert (answer.returncode, answer.stdout) == (0, f"rankscope {rankscope.__version__}\n")
    loaded = {line.rpartition("|")[2].strip() for line in answer.stderr.splitlines()}
    assert not loaded & {"numpy", "torch", "pyarrow"}


def test_internal_error_shows_a_printable_traceback_and_ends_with_status_70() -> None:
    answer = subprocess.run([sys.executable, "-c", CRASH, "runs"], **SAID)
    assert answer.returncode == 70
    assert answer.stderr.startswith("Traceback (most recent call last):\n")
    assert "RuntimeError: our mistake \\x1b[2J\n" in answer.stderr


def test_mistyped_command_suggests_the_correct_name() -> None:
    answer = subprocess.run([sys.executable, "-m", "ui.cli", "diagnoze"], capture_output=True, text=True, check=False)
    assert answer.returncode == 2
    assert "Did you mean 'diagnose'?" in answer.stderr


def invoked(*words: str) -> tuple[int, str]:
    """Exit status, and everything that the command printed. Errors with a hint are raised."""
    answer = CliRunner().invoke(app, list(words), env={"COLUMNS": "80"})
    if isinstance(answer.exception, UsageError):
        raise answer.exception
    return answer.exit_code, answer.output


def subcommands() -> Iterator[list[str]]:
    for name in COMMANDS:
        yield [name]
        yield from ([name, below] for below in getattr(load_command(name), "commands", {}))


@each_case("words", [[], *subcommands()])
def test_a_help_page_of_80_columns_cuts_no_word(words: list[str]) -> None:
    status, page = invoked(*words, "--help")
    assert status == 0
    assert "..." not in re.sub(r"[}\]]\.\.\.|\w\.\.\. <list", "", page)  # an argument that can be repeated
    assert "\u2026" not in page
    assert all(len(line) <= 80 for line in page.splitlines())


@pytest.mark.parametrize(
    ("name", "others"),
    [("diagnose", ["hang", "whatif"]), ("drive", ["node", "status", "drain", "replace", "pause", "resume"])],
)
def test_the_help_of_a_command_with_a_default_lists_the_other_subcommands(name: str, others: list[str]) -> None:
    whole = invoked(name, "--help")[1]
    assert whole.startswith(f"Usage: rankscope {name} [OPTIONS]")
    page = whole.partition("with --help:")[2]
    assert [line.split()[0] for line in page.splitlines() if line[2:3].strip()] == others


@each_case(
    ("words", "needed"),
    [
        ("doctor --folder .", "--node"),
        ("doctor --seconds 15", "--node or --pairs"),
        ("doctor --quick --pairs", "--node"),
        ("doctor --nnodes 2", "--node or --pairs"),
        ("doctor --node --patience 5", "--rdzv-endpoint"),
        ("doctor --store embedded:store", "--run"),
        ("simulate --no-prefetch", "--fsdp"),
        ("diagnose --every 5", "--watch"),
        ("diagnose hang --every 5", "--watch"),
        ("diagnose hang --world-size 8", "--dumps or --logs or --stacks"),
    ],
)
def test_an_option_without_effect_is_refused_with_a_hint(words: str, needed: str) -> None:
    with pytest.raises(UsageError) as refused:
        invoked(*words.split())
    assert refused.value.message.endswith(f" has no effect without {needed}")
    assert f"add {needed}, or omit --" in refused.value.hint


def test_drive_rejects_an_invalid_fault_or_action_before_the_job_starts(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="rank=99"):
        invoked("drive", "--out", str(tmp_path), "--fault", "die:rank=99,step=8")
    status, page = invoked("drive", "--out", str(tmp_path), "--act-on", "slow")
    assert (status, "'slow' is not one of 'compute-straggler'" in " ".join(page.split())) == (2, True)
    assert not (tmp_path / "drive" / "job.json").exists()


def test_a_row_of_an_ablation_that_cannot_train_is_refused_before_the_first_training(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="row 1, fused projection: a serial block has no fused projection"):
        invoked("ablate", "--techniques", "fused-projection", "--out", str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_a_profile_that_could_not_be_written_is_refused_before_a_rank_is_profiled(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="file is not a folder"):
        invoked("profile", "--ranks", "0", "--out", str(tmp_path / "file"))


def test_a_collector_that_does_not_answer_in_time_is_reported_with_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demonstration, "START_S", 0.2)
    (tmp_path / "log").touch()
    with subprocess.Popen(["sleep", "600"]) as process:
        with pytest.raises(UnreachableError, match=r"did not start: it did not answer within 0\.2 s"):
            demonstration._wait_ready(CollectorClient("http://127.0.0.1:1"), process, tmp_path / "log")
        process.kill()


def test_step_above_the_maximum_is_reduced_to_the_maximum() -> None:
    assert step_window(10**20, None) == StepWindow(first_step=LAST_STEP, last_step=LAST_STEP)
    assert step_window(None, 10**20) == StepWindow(first_step=0, last_step=LAST_STEP)


def test_environment_variable_without_effect_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKSCOPE_STORE", "embedded:store")
    assert "chdb" in invoked("doctor")[1]


@each_case("command", ["train --collector", "drive --collector", "runs --store", "simulate --store"])
@each_case("address", ["foo", "http://", "http://host:99999", "foo://host"])
def test_invalid_collector_address_is_rejected_at_the_start(command: str, address: str) -> None:
    with pytest.raises(UsageError, match="is not the address of a collector") as refused:
        invoked(*command.split(), address)
    assert "http://HOST:8719" in refused.value.hint


def test_a_receiver_without_a_scheme_is_refused_before_anything_is_read() -> None:
    with pytest.raises(UsageError, match="'tempo:4318' is not the address of a receiver"):
        invoked("export", "otlp", "--endpoint", "tempo:4318")


@each_case(
    ("words", "message"),
    [
        ("train --steps many", "must be a whole number"),
        ("train --steps 0", "must be greater than or equal to 1"),
        ("doctor --node --seconds soon", "must be a number"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_in_plain_words(words: str, message: str) -> None:
    status, output = invoked(*words.split())
    assert status == 2
    assert f"': {message}\n" in output


@each_case(
    ("train_status", "fault", "expected"),
    [
        (0, "slow", 0),
        (-14, "slow", 1),
        (143, "none", 1),
        (1, "slow", 1),
        (2, "slow", 2),
        (3, "slow", 3),
        (-9, "hang", 0),
    ],
)
def test_a_demo_ends_with_a_documented_status(train_status: int, fault: str, expected: int) -> None:
    report: Any = None
    outcome = Outcome(
        report=report, truth={"kind": fault}, losses=[], train_status=train_status, ended_by_demo=train_status < 0
    )
    assert outcome.exit_status == expected


@each_case(
    ("last_step", "waited_s", "reason"),
    [
        (-1, STALL_S + 1, None),
        (-1, FIRST_STEP_S + 1, "no step was completed within 300 s"),
        (4, STALL_S - 1, None),
        (4, STALL_S + 1, "no step was completed for 90 s after step 4"),
    ],
)
def test_a_demo_waits_longer_for_the_first_step(last_step: int, waited_s: float, reason: str | None) -> None:
    assert _too_long(last_step, waited_s) == reason
