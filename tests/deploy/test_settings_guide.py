"""The settings guide lists exactly the environment variables that the code reads."""

import re
from pathlib import Path

from diagnose.settings import DetectorSettings
from telemetry.collector.settings import CollectorSettings

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "guides" / "settings.md").read_text()
OPTIONS = {"RANKSCOPE_HOST", "RANKSCOPE_PORT", "RANKSCOPE_STORE"}
"""Options of servers. Ranks and commands read two of these names from the environment."""


def named_in_code() -> set[str]:
    files = [path for package in ("telemetry", "diagnose", "ui", "trainer") for path in (ROOT / package).rglob("*.py")]
    return {name for path in files for name in re.findall(r"RANKSCOPE_[A-Z_]*[A-Z]", path.read_text())}


def of_settings() -> set[str]:
    fields = ["sample_s", "network_s", *CollectorSettings.model_fields, *DetectorSettings.__dataclass_fields__]
    return {f"RANKSCOPE_{name.upper()}" for name in fields}


def test_settings_guide_lists_every_variable_exactly_once() -> None:
    told = re.findall(r"^\| (.*?) \|", GUIDE, re.MULTILINE)
    names = [name for cell in told for name in re.findall(r"RANKSCOPE_[A-Z_]*[A-Z]", cell)]
    assert len(names) == len(set(names))
    between_processes = {"RANKSCOPE_ALERT", "RANKSCOPE_STARTER"}
    assert set(names) == (named_in_code() - between_processes) | of_settings() - OPTIONS


def test_settings_guide_shows_the_default_values() -> None:
    units = {"MiB": 2**20}
    for name, field in CollectorSettings.model_fields.items():
        row = re.search(rf"^\| `RANKSCOPE_{name.upper()}` \| ([0-9.]+)( MiB)? \|", GUIDE, re.MULTILINE)
        if type(field.default) in (int, float) and f"RANKSCOPE_{name.upper()}" not in OPTIONS:
            assert row is not None, name
            assert float(row[1]) * units.get((row[2] or "").strip(), 1) == field.default, name
    for name, field in DetectorSettings.__dataclass_fields__.items():
        row = re.search(rf"^\| `RANKSCOPE_{name.upper()}` \| ([0-9.]+) \|", GUIDE, re.MULTILINE)
        assert row is not None
        assert float(row[1]) == field.default, name
