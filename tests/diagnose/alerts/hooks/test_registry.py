"""Hooks from their tables: what is wrong in a table is told at once, by hook and key, and without its value."""

import sys
from pathlib import Path

import pytest

from diagnose.alerts.hooks.registry import OURS, make_hook
from telemetry.errors import UsageError
from tests.diagnose.alerts.made_notice import made_notice

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


def told(table: dict[str, object]) -> str:
    with pytest.raises(UsageError) as caught:
        make_hook("ops", table)
    return str(caught.value)


def test_a_type_that_is_missing_or_misspelt_is_told() -> None:
    assert "hook ops has no type" in told({"url": "http://127.0.0.1:1"})
    assert "unknown type 'pagerdutty'" in told({"type": "pagerdutty"})
    assert "did you mean pagerduty?" in told({"type": "pagerdutty"})
    assert all(name in told({"type": "zzz"}) for name in OURS)


@pytest.mark.parametrize(
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
        ({"envelope": "cloudevents", "batch": 2}, "a CloudEvent contains a single notification"),
    ],
)
def test_a_wrong_key_is_told_by_hook_and_key(change: dict[str, object], expected: str) -> None:
    assert expected in told({**WEBHOOK, **change})


@pytest.mark.parametrize(
    ("table", "needs"),
    [
        ({"type": "webhook"}, "url or url_env or url_file"),
        ({"type": "slack"}, "url_env or url_file"),
        ({"type": "pagerduty"}, "routing_key_env or routing_key_file"),
        ({"type": "command"}, "argv"),
    ],
)
def test_what_is_missing_is_told(table: dict[str, object], needs: str) -> None:
    assert f"hook ops needs {needs}\n" in told(table)


@pytest.mark.parametrize(
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
def test_a_secret_in_the_configuration_is_refused_and_not_repeated(table: dict[str, object]) -> None:
    assert SECRET not in told(table)


def test_where_a_secret_goes_is_told() -> None:
    words = told({"type": "slack", "url": f"https://hooks.slack.com/services/{SECRET}"})
    assert "url is a secret and must not be in the configuration\n\nhint: write url_env = " in words


def test_a_secret_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("EMPTY", " \n")
    (tmp_path / "lines").write_text("one\ntwo\n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with (without_end := tmp_path / "long").open("wb") as file:
        file.truncate(2**43)
    assert "the variable that token_env names is not set" in told({**WEBHOOK, "token_env": "NOT_SET_ANYWHERE"})
    assert "token_env is empty" in told({**WEBHOOK, "token_env": "EMPTY"})
    assert "No such file" in told({**WEBHOOK, "token_file": str(tmp_path / "none")})
    assert "more than one line" in told({**WEBHOOK, "token_file": str(tmp_path / "lines")})
    assert "it is not text" in told({**WEBHOOK, "token_file": str(tmp_path / "binary")})
    assert "Larger than" in told({**WEBHOOK, "token_file": str(without_end)})
    assert "set the same value" in told({**WEBHOOK, "token_file": str(tmp_path / "lines"), "token_env": "EMPTY"})


def test_labels_that_alertmanager_would_refuse_are_refused_before() -> None:
    table = {"type": "alertmanager", "url": "http://127.0.0.1:1"}
    make_hook("am", {**table, "labels": {"cluster": "a"}})
    assert "hook ops: labels" in told({**table, "labels": {"data-centre": "a"}})
    assert "hook ops: labels" in told({**table, "labels": {"rack": 7}})
    assert "resend_s" in told({**table, "resend_s": 0})


def test_a_program_or_folder_that_is_not_there_is_told_at_once(tmp_path: Path) -> None:
    assert "program '/none/such' not found" in told({"type": "command", "argv": ["/none/such"]})
    assert "does not exist" in told({"type": "log", "path": str(tmp_path / "none" / "alerts.log")})


@pytest.mark.usefixtures("package")
def test_a_package_brings_a_hook_of_its_own() -> None:
    hook = make_hook("dovecote", {"type": "pigeon"})
    hook.send([made_notice()])
    assert (hook.name, hook.batch, hook.sent) == ("dovecote", 3, [made_notice()])  # type: ignore[attr-defined]


@pytest.mark.usefixtures("package")
def test_a_package_does_not_replace_ours() -> None:
    assert isinstance(make_hook("lines", {"type": "log"}), OURS["log"])  # type: ignore[arg-type]


@pytest.mark.usefixtures("package")
def test_a_package_that_does_not_load_is_named() -> None:
    assert "entry point lost = pigeon_post_that_is_gone:Carrier cannot be loaded: ModuleNotFound" in told(
        {"type": "lost"}
    )
    assert "entry point pigeon = pigeon_post:Carrier cannot be loaded: RuntimeError: no pigeons" in told(
        {"type": "pigeon", "broken": True}
    )
    assert "is not a hook: it has no name, resend_s, batch, send" in told({"type": "feather"})


def test_without_apprise_it_is_told_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)
    monkeypatch.setenv("APPRISE_URLS", "json://127.0.0.1")
    assert "apprise is not installed\n\nhint: pip install 'rankscope[alerts]'" in told(
        {"type": "apprise", "urls_env": "APPRISE_URLS"}
    )
