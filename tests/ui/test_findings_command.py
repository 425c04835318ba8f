"""`rankscope alerts log`, `acknowledge`, `note` and `silence` against a real collector."""

import json
import os
import time
from collections.abc import Iterator

import pytest
from click.testing import Result
from typer.testing import CliRunner

from diagnose.alerts.alert import Phase
from diagnose.findings import Severity
from telemetry.errors import UsageError
from telemetry.stores.embedded import EmbeddedStore
from tests.each_case import each_case
from tests.telemetry.served import collecting
from tests.ui.reported_alerts import S, made_alert, tell_log
from ui.cli.commands.alerts import alerts_app


@pytest.fixture
def address(embedded: EmbeddedStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name in [name for name in os.environ if name.startswith("RANKSCOPE_")]:
        monkeypatch.delenv(name)
    now_ns = time.time_ns()
    slow = made_alert("gpt", began_ns=now_ns - 600 * S, summary="slow \x1b[2J")
    dead = made_alert("gpt", began_ns=now_ns - 60 * S, kind="dead-rank", severity=Severity.CRITICAL)
    past = made_alert("old", began_ns=now_ns - 9 * 86_400 * S, phase=Phase.RESOLVED)
    tell_log(embedded, [slow, dead, past], at_ns=now_ns - 8 * 86_400 * S)
    with collecting(embedded, token="all", read_token="out") as client:
        monkeypatch.setenv("RANKSCOPE_TOKEN", "all")
        yield client.url


def asked(*arguments: object) -> Result:
    return CliRunner().invoke(alerts_app, [str(one) for one in arguments])


def listed(address: str, *conditions: str) -> list[dict[str, object]]:
    answer = asked("log", "--store", address, "--json", *conditions)
    assert answer.exit_code == 0
    body = json.loads(answer.stdout)
    assert body["schema"] == 1
    return list(body["findings"])


def test_the_log_is_filtered_and_paged_the_newest_first(address: str) -> None:
    def kinds(*conditions: str) -> list[object]:
        return [(found["run"], found["kind"]) for found in listed(address, *conditions)]

    everything = [("gpt", "dead-rank"), ("gpt", "compute-straggler"), ("old", "compute-straggler")]
    assert kinds() == kinds("--until", "9999-12-31") == everything
    assert kinds("--limit", "2", "--page", "2") == everything[2:]
    assert kinds("--run", "gpt", "--kind", "dead-rank") == everything[:1]
    assert kinds("--state", "resolved") == kinds("--until", "7d") == kinds("--find", "OL") == everything[2:]
    assert kinds("--since", "7d", "--severity", "warning") == everything[1:2]
    text = asked("log", "--store", address).stdout
    assert "\x1b[2J" not in text
    assert text.splitlines()[-1] == "1 to 3 of 3, the newest first"


def test_actions_of_a_user_are_listed_with_the_finding(address: str) -> None:
    name = str(listed(address, "--kind", "dead-rank")[0]["fingerprint"])
    store = ("--store", address, "--by", "Ada")
    for arguments in (
        ("acknowledge", name, *store, "--text", "on it"),
        ("note", name, "the fan is replaced", *store),
        ("silence", name, "--for", "2h", *store),
    ):
        assert asked(*arguments).exit_code == 0
    (found,) = listed(address, "--state", "acknowledged")
    actions = [(each["action"], each["who"], each["text"]) for each in found["actions"]]  # type: ignore[attr-defined]
    assert actions == [("acknowledge", "Ada", "on it"), ("note", "Ada", "the fan is replaced"), ("silence", "Ada", "")]
    assert "Ada acknowledged it: on it" in asked("log", "--store", address).stdout
    assert len(listed(address, "--state", "silenced")) == 1
    assert asked("silence", name, "--end", *store).exit_code == 0
    assert asked("acknowledge", name, "--undo", *store).exit_code == 0
    assert listed(address, "--state", "silenced") == listed(address, "--state", "acknowledged") == []


@each_case(
    ("arguments", "said"),
    [
        (("log", "--kind", "x"), "--kind 'x' is unknown"),
        (("log", "--since", "soon"), "--since 'soon' is not a time"),
        (("note", "x", "text"), "'x' is not a fingerprint"),
        (("acknowledge", "ab" * 8), "no finding abababababababab"),
        (("silence", "ab" * 8), "needs one of --for, --until and --end"),
        (("silence", "ab" * 8, "--for", "x"), "--for 'x' is not a duration"),
    ],
)
def test_wrong_use_of_alerts_commands_is_reported_with_a_hint(
    address: str, arguments: tuple[str, ...], said: str
) -> None:
    error = asked(*arguments, "--store", address).exception
    assert isinstance(error, UsageError)
    assert said in error.message
    assert error.hint


@each_case("end", [("--for", "0h"), ("--for", "5000d"), ("--until", "4h"), ("--until", "2001-01-01")])
def test_a_silence_that_ends_in_the_past_or_too_late_is_refused_with_the_options(end: tuple[str, str]) -> None:
    error = asked("silence", "ab" * 8, *end).exception
    assert isinstance(error, UsageError)
    assert "must be in the future, at most a year" in error.message
    assert "--for 4h" in error.hint


def test_read_token_cannot_acknowledge_a_finding(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = str(listed(address)[0]["fingerprint"])
    monkeypatch.delenv("RANKSCOPE_TOKEN")
    monkeypatch.setenv("RANKSCOPE_READ_TOKEN", "out")
    error = asked("acknowledge", name, "--store", address).exception
    assert isinstance(error, UsageError)
    assert "this token may only read" in error.message
    assert listed(address, "--state", "acknowledged") == []
