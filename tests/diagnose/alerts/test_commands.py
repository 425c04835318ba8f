"""The commands `rankscope alerts test` and `rankscope alerts list`."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from diagnose.alerts.listing import state_text
from diagnose.findings import Kind, Severity
from telemetry.errors import UnreachableError, UsageError
from tests.deadline import until
from tests.diagnose.alerts.made_checks import START_NS, Watched, finding, quick
from ui.cli.commands.alerts import alerts_app

RULES = """
[hooks.lines]
type = "log"
path = "{folder}/told.log"
[hooks.refuses]
type = "command"
argv = ["/bin/sh", "-c", "echo not like this >&2; exit 65"]
[hooks.nobody]
type = "webhook"
url = "http://127.0.0.1:1"
"""
ALERTS = [sys.executable, "-c", "from ui.cli.commands.alerts import alerts_app; alerts_app()"]


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    written = tmp_path / "rules.toml"
    written.write_text(RULES.format(folder=tmp_path))
    return written


def run_alerts(*arguments: object) -> Result:
    return CliRunner().invoke(alerts_app, [str(one) for one in arguments])


def test_alerts_test_sends_a_sample_alert_and_its_end_and_prints_the_sample_run(rules: Path) -> None:
    answer = run_alerts("test", "lines", "--config", rules)
    fires, is_over = (rules.parent / "told.log").read_text().splitlines()
    (run,) = (word for word in fires.split() if word.startswith("run_id=sample-"))
    assert (fires.split()[1], is_over.split()[1]) == ("firing", "resolved")
    assert run in is_over.split()
    assert answer.exit_code == 0
    assert answer.stdout.splitlines() == [
        f"hook lines accepted the sample alert. Its run is {run.removeprefix('run_id=')}",
        "hook lines accepted the end of the sample alert",
    ]


def test_alerts_test_with_hold_resolves_the_sample_alert_on_sigint(rules: Path) -> None:
    told = rules.parent / "told.log"
    with subprocess.Popen([*ALERTS, "test", "lines", "--config", str(rules), "--hold", "600"]) as held:
        until(lambda: told.is_file() and told.read_text(), what="the sample", seconds=60)
        assert [line.split()[1] for line in told.read_text().splitlines()] == ["firing"]
        held.send_signal(signal.SIGINT)
        assert held.wait(60) == 0
    assert [line.split()[1] for line in told.read_text().splitlines()] == ["firing", "resolved"]


@pytest.mark.parametrize(
    ("hook", "kind", "said", "hint"),
    [
        ("refuses", UsageError, "exit status 65: not like this", "Check the section [hooks.refuses]"),
        ("nobody", UnreachableError, "hook nobody: http://127.0.0.1:1: ", "check that the receiver runs"),
        ("pager", UsageError, "unknown hook 'pager'", "hooks in the settings: lines, refuses, nobody"),
    ],
)
def test_alerts_test_reports_a_failing_or_unknown_hook_with_a_hint(
    rules: Path, hook: str, kind: type[UsageError], said: str, hint: str
) -> None:
    error = run_alerts("test", hook, "--config", rules).exception
    assert isinstance(error, kind)
    assert said in error.message
    assert hint in error.hint


def test_alerts_test_suggests_config_for_an_unknown_hook_without_a_settings_file() -> None:
    error = run_alerts("test", "pager").exception
    assert isinstance(error, UsageError)
    assert error.hint == "hooks in the settings: log; --config FILE adds the hooks of a file"


def test_alerts_list_reports_a_missing_state_and_creates_no_file(tmp_path: Path) -> None:
    answer = run_alerts("list", "--state", tmp_path / "alerts.sqlite")
    assert answer.exit_code == 0
    assert "`rankscope alerts run` creates it" in answer.stdout
    assert not list(tmp_path.iterdir())


def test_alert_list_shows_cost_next_step_and_suppressing_alert() -> None:
    watched = Watched(quick())
    watched.sees(finding(Kind.NIC_FLAP, 3, device="eth0"), finding(Kind.COMPUTE_STRAGGLER, 40))
    watched.quietly(120, finding(Kind.NIC_FLAP, 3, device="eth0"))
    hung = finding(Kind.HUNG_COLLECTIVE, 3, severity=Severity.CRITICAL, seconds_lost=0)
    watched.sees(finding(Kind.NIC_FLAP, 3, device="eth0"), hung)
    head, *lines, counts = str(state_text(watched.state, {}, START_NS)).splitlines()
    assert head.split()[0] == "state"
    assert [line.rpartition("  ")[2] for line in lines] == [
        "hung-collective of [3] | look at it | not sent: suppressed by nic-flap",
        "nic-flap of [3] | 3.0 s lost so far | look at it",
        "resolved after 5 s: compute-straggler of [40]",
    ]
    assert counts == "2 firing, 1 resolved"
