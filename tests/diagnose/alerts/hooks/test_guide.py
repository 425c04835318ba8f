"""The examples and tables of the guide on alert hooks are correct."""

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
    """The file of a secret. Also sets the other secrets and a fake module `apprise`."""
    for name in re.findall(r'^\w+_env = "(\w+)"', GUIDE.read_text(), re.MULTILINE):
        monkeypatch.setenv(name, "s3cr3t")
    monkeypatch.setenv("EVENTS_URL", "https://events.example/")
    monkeypatch.setenv("APPRISE_URLS", "json://127.0.0.1")
    module = ModuleType("apprise")
    module.Apprise = Apprise  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "apprise", module)
    (tmp_path / "secret").write_text("https://hooks.slack.com/services/T0/B0/s3cr3t\n")
    return tmp_path / "secret"


def test_every_example_in_the_hooks_guide_makes_its_hook(secrets: Path) -> None:
    made = set()
    for block in blocks("toml"):
        for name, table in tomllib.loads(block).get("hooks", {}).items():
            placed = {key: str(secrets) if key.endswith("_file") else value for key, value in table.items()}
            if table["type"] == "command":
                placed["argv"] = ["true", *table["argv"][1:]]
            assert make_hook(name, placed).name == name
            made.add(table["type"])
    assert made == set(OURS)


def test_table_in_the_hooks_guide_lists_default_resend_interval_and_batch_size(secrets: Path) -> None:
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


def test_alertmanager_rules_in_the_hooks_guide_name_existing_kinds() -> None:
    (block,) = blocks("yaml")
    rules = yaml.safe_load(block)["inhibit_rules"]
    matchers = [matcher for rule in rules for matcher in (*rule["source_matchers"], *rule["target_matchers"])]
    names = [re.findall(r'alertname =~? "(.*)"', matcher) for matcher in matchers if matcher.startswith("alertname")]
    assert len(names) == 2 * len(rules)
    assert {kind for (found,) in names for kind in found.split("|")} <= set(Kind)


def test_entry_point_example_in_the_hooks_guide_uses_the_right_group() -> None:
    groups = [tomllib.loads(block).get("project", {}).get("entry-points", {}) for block in blocks("toml")]
    assert [list(group) for group in groups if group] == [[GROUP]]
