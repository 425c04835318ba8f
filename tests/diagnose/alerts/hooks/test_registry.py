"""Hooks are made from tables. An error in a table is reported at once, with hook and key, without the value."""

import sys
from pathlib import Path

import pytest

from diagnose.alerts.hooks.registry import OURS, make_hook
from telemetry.errors import UsageError
from tests.diagnose.alerts.made_notice import made_notice
from tests.each_case import each_case

WEBHOOK = {"type": "webhook", "url": "http://127.0.0.1:1"}
SECRET = "hunter2hunter2"

THEIR_MODULE = """
class Carrier:
    resend_s = 0.0
    batch = 3
    def __init__(self, name, table):
        self.name = name
        self.sent = []
        if table.get("broken"):
            raise RuntimeError("no pigeons")
    def send(self, notices):
        self.sent += notices

def nothing(name, table):
    return object()
"""
THEIR_POINTS = """[rankscope.alert_hooks]
pigeon = pigeon_post:Carrier
feather = pigeon_post:nothing
lost = pigeon_post_that_is_gone:Carrier
log = pigeon_post:Carrier
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package with entry points of its own."""
    (tmp_path / "pigeon_post.py").write_text(THEIR_MODULE)
    info = tmp_path / "pigeon_post-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pigeon-post\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(THEIR_POINTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "pigeon_post", raising=False)


def error_of(table: dict[str, object]) -> str:
    with pytest.raises(UsageError) as caught:
        make_hook("ops", table)
    return str(caught.value)


def test_missing_or_misspelt_hook_type_is_reported() -> None:
    assert "hook ops has no type" in error_of({"url": "http://127.0.0.1:1"})
    assert "unknown type 'pagerdutty'" in error_of({"type": "pagerdutty"})
    assert "did you mean pagerduty?" in error_of({"type": "pagerdutty"})
    assert all(name in error_of({"type": "zzz"}) for name in OURS)


@each_case(
    ("change", "expected"),
    [
        ({"timeout": 3}, "hook ops: unknown key 'timeout'\n\nhint: did you mean timeout_s?"),
        ({"colour": "red"}, "hook ops: unknown key 'colour'\n\nhint: known: type, url, url_env, url_file, token_env"),
        ({"timeout_s": "3"}, "hook ops: timeout_s: must be a number"),
        ({"timeout_s": 0}, "hook ops: timeout_s: must be greater than 0"),
        ({"timeout_s": float("nan")}, "hook ops: timeout_s: must be a finite number"),
        ({"resend_s": -1}, "hook ops: resend_s: must be greater than or equal to 0"),
        ({"batch": True}, "hook ops: batch: must be a whole number"),
        ({"envelope": "paper"}, "hook ops: envelope: must be 'none' or 'cloudevents'"),
        ({"url": 7}, "hook ops: url: must be text"),
        ({"envelope": "cloudevents", "batch": 2}, "a CloudEvent can contain only one notification"),
    ],
)
def test_invalid_key_or_value_is_reported_with_hook_and_key(change: dict[str, object], expected: str) -> None:
    assert expected in error_of({**WEBHOOK, **change})


@each_case(
    ("table", "needs"),
    [
        ({"type": "webhook"}, "url or url_env or url_file"),
        ({"type": "slack"}, "url_env or url_file"),
        ({"type": "pagerduty"}, "routing_key_env or routing_key_file"),
        ({"type": "command"}, "argv"),
    ],
)
def test_missing_required_key_is_reported(table: dict[str, object], needs: str) -> None:
    assert f"hook ops needs {needs}\n" in error_of(table)


@each_case(
    "table",
    [
        {"type": "slack", "url": f"https://hooks.slack.com/services/{SECRET}"},
        {"type": "pagerduty", "routing_key": SECRET},
        {"type": "webhook", "url": f"http://user:{SECRET}@host/"},
        {**WEBHOOK, "token": SECRET},
        {**WEBHOOK, "token_env": SECRET},
        {**WEBHOOK, "token_file": SECRET},
        {**WEBHOOK, "token_file": "/"},
        {**WEBHOOK, "timeout_s": SECRET},
        {"type": "apprise", "urls": SECRET},
    ],
)
def test_secret_in_the_configuration_is_rejected_and_not_printed(table: dict[str, object]) -> None:
    assert SECRET not in error_of(table)


def test_error_for_a_secret_in_the_configuration_suggests_url_env() -> None:
    words = error_of({"type": "slack", "url": f"https://hooks.slack.com/services/{SECRET}"})
    assert "url is a secret and must not be in the configuration\n\nhint: write url_env = " in words


def test_missing_or_invalid_secret_is_reported_with_its_cause(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("EMPTY", " \n")
    (tmp_path / "lines").write_text("one\ntwo\n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with (without_end := tmp_path / "long").open("wb") as file:
        file.truncate(2**43)
    assert "the variable that token_env names is not set" in error_of({**WEBHOOK, "token_env": "NOT_SET_ANYWHERE"})
    assert "token_env is empty" in error_of({**WEBHOOK, "token_env": "EMPTY"})
    assert "No such file" in error_of({**WEBHOOK, "token_file": str(tmp_path / "none")})
    assert "more than one line" in error_of({**WEBHOOK, "token_file": str(tmp_path / "lines")})
    assert "it is not text" in error_of({**WEBHOOK, "token_file": str(tmp_path / "binary")})
    assert "Larger than" in error_of({**WEBHOOK, "token_file": str(without_end)})
    assert "set the same value" in error_of({**WEBHOOK, "token_file": str(tmp_path / "lines"), "token_env": "EMPTY"})


def test_alertmanager_hook_rejects_invalid_labels_and_a_resend_s_of_zero() -> None:
    table = {"type": "alertmanager", "url": "http://127.0.0.1:1"}
    make_hook("am", {**table, "labels": {"cluster": "a"}})
    assert "hook ops: labels" in error_of({**table, "labels": {"data-centre": "a"}})
    assert "hook ops: labels" in error_of({**table, "labels": {"rack": 7}})
    assert "resend_s" in error_of({**table, "resend_s": 0})


def test_missing_program_or_folder_is_reported_when_the_hook_is_made(tmp_path: Path) -> None:
    assert "program '/none/such' not found" in error_of({"type": "command", "argv": ["/none/such"]})
    assert "does not exist" in error_of({"type": "log", "path": str(tmp_path / "none" / "alerts.log")})


@pytest.mark.usefixtures("package")
def test_installed_package_can_add_a_hook_type() -> None:
    hook = make_hook("dovecote", {"type": "pigeon"})
    hook.send([made_notice()])
    assert (hook.name, hook.batch, hook.sent) == ("dovecote", 3, [made_notice()])  # type: ignore[attr-defined]


@pytest.mark.usefixtures("package")
def test_installed_package_cannot_replace_a_built_in_hook_type() -> None:
    assert isinstance(make_hook("lines", {"type": "log"}), OURS["log"])  # type: ignore[arg-type]


@pytest.mark.usefixtures("package")
def test_entry_point_that_fails_to_load_is_named_in_the_error() -> None:
    assert "entry point lost = pigeon_post_that_is_gone:Carrier cannot be loaded: ModuleNotFound" in error_of(
        {"type": "lost"}
    )
    assert "entry point pigeon = pigeon_post:Carrier cannot be loaded: RuntimeError: no pigeons" in error_of(
        {"type": "pigeon", "broken": True}
    )
    assert "is not a hook: it has no name, resend_s, batch, send" in error_of({"type": "feather"})


def test_apprise_hook_reports_how_to_install_apprise_when_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)
    monkeypatch.setenv("APPRISE_URLS", "json://127.0.0.1")
    assert "apprise is not installed\n\nhint: pip install 'rankscope[alerts]'" in error_of(
        {"type": "apprise", "urls_env": "APPRISE_URLS"}
    )
