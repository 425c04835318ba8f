"""The page on hooks: what it shows works."""

import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from diagnose.alerts.hooks.registry import GROUP, OURS, make_hook
from diagnose.findings import Kind
from tests.diagnose.alerts.hooks.guide import GUIDE, blocks


class Apprise:
    def add(self, url: str) -> bool:
        return True


@pytest.fixture
def secrets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A secret, and apprise, for those that need them."""
    for name in ("TICKETS_TOKEN", "PAGERDUTY_ROUTING_KEY"):
        monkeypatch.setenv(name, "s3cr3t")
    monkeypatch.setenv("EVENTS_URL", "https://events.example/")
    monkeypatch.setenv("APPRISE_URLS", "json://127.0.0.1")
    module = ModuleType("apprise")
    module.Apprise = Apprise  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "apprise", module)
    (tmp_path / "secret").write_text("https://hooks.slack.com/services/T0/B0/s3cr3t\n")
    return tmp_path / "secret"


def test_every_example_makes_its_hook(secrets: Path) -> None:
    made = set()
    for block in blocks("toml"):
        for name, table in tomllib.loads(block).get("hooks", {}).items():
            placed = {key: str(secrets) if key.endswith("_file") else value for key, value in table.items()}
            if table["type"] == "command":
                placed["argv"] = ["true", *table["argv"][1:]]
            assert make_hook(name, placed).name == name
            made.add(table["type"])
    assert made == set(OURS)


def test_the_table_of_hooks_says_what_they_do_by_default(secrets: Path) -> None:
    rows = re.findall(
        r"^\| \[`([\w-]+)`\]\(#[\w-]+\) \|[^|]*\| (?:no|every (\d+) s)[^|]*\| (\d+)", GUIDE.read_text(), re.MULTILINE
    )
    given = {
        table["type"]: {
            key: value for key, value in table.items() if key != "type" and "resend" not in key and key != "batch"
        }
        for block in blocks("toml")
        for table in tomllib.loads(block).get("hooks", {}).values()
    }
    least = {
        kind: {
            key: str(secrets) if key.endswith("_file") else ["true"] if key == "argv" else value
            for key, value in table.items()
        }
        for kind, table in given.items()
    }
    said = {kind: (float(resend_s or 0), int(batch)) for kind, resend_s, batch in rows}
    hooks = {kind: make_hook(kind, {"type": kind, **table}) for kind, table in least.items()}
    assert said == {kind: (hook.resend_s, hook.batch) for kind, hook in hooks.items()}


def test_the_rules_for_alertmanager_name_kinds_that_there_are() -> None:
    (block,) = blocks("yaml")
    rules = yaml.safe_load(block)["inhibit_rules"]
    matchers = [matcher for rule in rules for matcher in (*rule["source_matchers"], *rule["target_matchers"])]
    names = [re.findall(r'alertname =~? "(.*)"', matcher) for matcher in matchers if matcher.startswith("alertname")]
    assert len(names) == 2 * len(rules)
    assert {kind for (found,) in names for kind in found.split("|")} <= set(Kind)


def test_the_entry_point_is_in_the_group_that_is_asked_for() -> None:
    groups = [tomllib.loads(block).get("project", {}).get("entry-points", {}) for block in blocks("toml")]
    assert [list(group) for group in groups if group] == [[GROUP]]
