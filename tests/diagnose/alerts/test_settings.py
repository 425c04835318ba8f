"""The settings file with rules and hooks: its valid values, and the errors for invalid ones."""

import os
import re
from pathlib import Path

import pytest

from diagnose.alerts.rules import DEFAULTS
from diagnose.alerts.settings import MAX_BYTES, default_settings, make_hooks, parse_settings, read_settings
from diagnose.findings import Kind, Severity
from telemetry.errors import UnreadableError, UsageError
from tests.each_case import each_case

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "alerts.md"
TWO_HOOKS = '[hooks.log]\ntype = "log"\n[hooks.more]\ntype = "log"\n'


def test_every_kind_of_finding_has_a_rule() -> None:
    assert set(DEFAULTS) == set(Kind)


def test_all_kinds_are_sent_to_the_log_hook_without_a_settings_file() -> None:
    settings = default_settings()
    assert {rule.hooks for rule in settings.rules.values()} == {("log",)}
    assert [hook.name for hook in make_hooks(settings)] == ["log"]


def test_rule_of_a_kind_overrides_the_common_rule_and_that_overrides_the_default() -> None:
    text = (
        TWO_HOOKS + '[rules]\nkeep_firing_for = "2m"\nhooks = ["more"]\n[rules.nic-flap]\nfor = 1.5\nseverity = "info"'
    )
    rules = parse_settings(text, where="test").rules
    assert rules["nic-flap"].for_s == 1.5
    assert rules["nic-flap"].keep_firing_for_s == 120
    assert rules["nic-flap"].severity is Severity.INFO
    assert rules["nic-flap"].hooks == ("more",)
    assert rules["dead-rank"].for_s == DEFAULTS[Kind.DEAD_RANK].for_s


def test_a_kind_may_have_no_hooks() -> None:
    assert parse_settings("[rules.mfu-decline]\nhooks = []", where="test").rules["mfu-decline"].hooks == ()


@each_case(
    ("text", "seconds"),
    [('"30s"', 30), ('"5m"', 300), ('"1.5h"', 5400), ('"250 ms"', 0.25), ("7", 7), ('"1d"', 86_400)],
)
def test_duration_is_read_from_text_with_a_unit_or_from_a_number_of_seconds(text: str, seconds: float) -> None:
    assert parse_settings(f"[rules]\nfor = {text}", where="test").rules["nic-flap"].for_s == seconds


@each_case(
    ("text", "what", "hint"),
    [
        ("evry = 5", "test: evry: unknown key", "did you mean every?"),
        ("every = 0", "test: every is 0", "0.2 s or more"),
        ('every = "soon"', "test: every is 'soon'", "a duration such as"),
        ("every = true", "test: every is True", "a duration such as"),
        ("every = nan", "test: every is nan", "a duration such as"),
        ("dashboard = 5", "test: dashboard is 5", "it must be text"),
        ('dashboard = "example.org"', "test: dashboard is 'example.org'", "http"),
        ("[rules]\nfro = 5", "test: rules.fro is not a table", "for, keep_firing_for"),
        ("[rules.nic-flop]\nfor = 5", "test: rules.nic-flop: unknown kind", "did you mean nic-flap?"),
        ("[rules.nic-flap]\nfro = 5", "test: rules.nic-flap.fro: unknown key", "did you mean for?"),
        ("[rules.nic-flap]\nfor = -1", "test: rules.nic-flap.for is -1", "a duration"),
        ('[rules.nic-flap]\nseverity = "bad"', "test: rules.nic-flap.severity is 'bad'", "critical, warning, info"),
        ('[rules]\nhooks = ["pagr"]', "test: rules.hooks: unknown hook 'pagr'", "known: log"),
        ('[rules]\nhooks = "log"', "test: rules.hooks is 'log'", "a list of names"),
        ("[flapping]\ntimes = 0", "test: flapping.times is 0", "1 to 1000"),
        ("flapping = 3", "test: flapping is 3", "it must be a table"),
        ('[rules]\nhooks = [["a"]]', "test: rules.hooks: unknown hook ['a']", "known: log"),
        ("[rules]\nhooks = [{}]", "test: rules.hooks: unknown hook {}", "known: log"),
        ('state = "~nouser-of-that-name/x"', "test: state is '~nouser-of-that-name/x'", "the path of a file"),
        ('state = "a\\u0000b"', "test: state is 'a", "the path of a file"),
        ('state = "/"', "test: state is '/'", "the path of a file"),
        ("every = " + "9" * 400, "test: every is 999", "a duration such as"),
        ("every = 0x" + "f" * 9000, "test: every is of type int", "a duration such as"),
        ("every = " + "9" * 9000, "test: invalid TOML", "an example"),
        ("every = " + "[" * 5000, "test: invalid TOML", "an example"),
        ("[hooks]\nlog = 3", "test: hooks.log is not a table", "[hooks.log]"),
        ('[hooks."a b"]\ntype = "log"', "is not a valid name", "letters"),
    ],
)
def test_invalid_setting_is_reported_with_its_key_and_a_hint(text: str, what: str, hint: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_settings(text, where="test")
    assert what in raised.value.message
    assert hint in raised.value.hint


def test_make_hooks_raises_a_usage_error_for_an_unknown_hook_type() -> None:
    with pytest.raises(UsageError, match="pigeon"):
        make_hooks(parse_settings('[hooks.far]\ntype = "pigeon"', where="test"))


def test_invalid_toml_is_reported_with_its_line_and_a_missing_file_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text("every = 5\n[rules\n")
    with pytest.raises(UnreadableError, match="line 2"):
        read_settings(path)
    with pytest.raises(UnreadableError, match="No such file"):
        read_settings(tmp_path / "none.toml")


def test_relative_state_path_is_resolved_beside_the_settings_file_and_absolute_path_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text('state = "alerts.sqlite"')
    assert read_settings(path).state == tmp_path / "alerts.sqlite"
    path.write_text('state = "/var/lib/alerts.sqlite"')
    assert read_settings(path).state == Path("/var/lib/alerts.sqlite")


def test_example_in_the_alerts_guide_is_parsed_and_its_hooks_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    settings = parse_settings(example, where="guide")
    assert settings.every_s == 5
    assert settings.rules["nic-flap"].hooks == ("pager", "manager")
    for name in re.findall(r'_env = "(\w+)"', example):
        monkeypatch.setenv(name, "https://127.0.0.1/" + "k" * 32 if name.endswith("URL") else "k" * 32)
    assert {hook.name for hook in make_hooks(settings)} == set(settings.hooks)


def test_alerts_guide_lists_the_default_rule_of_every_kind() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \| ([0-9.]+) s \| ([0-9.]+) s \|", GUIDE.read_text(), re.MULTILINE)
    told = {kind: (float(for_s), float(keep_s)) for kind, for_s, keep_s in rows}
    assert told == {str(kind): (rule.for_s, rule.keep_firing_for_s) for kind, rule in DEFAULTS.items()}


@each_case(
    ("hook", "key"),
    [
        ('type = "webhook"\nurl = "http://127.0.0.1:99999/"', "url"),
        ('type = "webhook"\nurl = "http://127.0.0.1:0/"', "url"),
        ('type = "webhook"\nurl = "http://[bad"', "url"),
        ('type = "webhook"\nurl = "http://a..b/"', "url"),
        ('type = "command"\nargv = ["true", "a\\u0000b"]', "argv"),
        ('type = "log"\npath = "a\\u0000b"', "path"),
    ],
)
def test_hook_with_an_invalid_value_is_rejected_with_the_name_of_its_key(hook: str, key: str) -> None:
    with pytest.raises(UsageError, match=rf"hook far: .*{key}"):
        make_hooks(parse_settings(f"[hooks.far]\n{hook}", where="test"))


@each_case("url", ["http://[::1]:80/", "http://[fe80::1%25lo]/", "http://a_b.example:65535/x", "http://m.de."])
def test_webhook_urls_of_every_valid_form_are_accepted(url: str) -> None:
    (hook,) = make_hooks(parse_settings(f'[hooks.far]\ntype = "webhook"\nurl = "{url}"', where="test"))
    assert hook.name == "far"


def test_settings_file_must_be_a_regular_file_within_the_size_limit(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "long").write_bytes(b"#" * (MAX_BYTES + 1))
    (tmp_path / "as long as may be").write_bytes(b"#" * MAX_BYTES)
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(UnreadableError, match="Not a regular file"):
            read_settings(path)
    with pytest.raises(UnreadableError, match="Is a directory"):
        read_settings(tmp_path)
    with pytest.raises(UnreadableError, match="Larger than 1,048,576 bytes"):
        read_settings(tmp_path / "long")
    assert read_settings(tmp_path / "as long as may be").every_s == 5
