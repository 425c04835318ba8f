"""`rankscope compare`: exit status, JSON as the guide documents it, and text."""

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from diagnose.simulate.noise import RECORDED
from telemetry.collector.server import create_app
from telemetry.collector.settings import CollectorSettings
from tests.memory_store import memory_store
from tests.ui.served_dashboard import serving_app
from tests.ui.simulated_run import store_simulated
from ui.cli.main import app

GUIDE = Path(__file__).parents[2] / "docs/guides/compare.md"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with memory_store() as store:
        for name, seed, faults in (("base", 0, ()), ("same", 1, ()), ("slow", 2, ("slow:rank=3,factor=1.15",))):
            store_simulated(store, name, *faults, noise=RECORDED, seed=seed)
        with serving_app(create_app(store, CollectorSettings())) as address:
            yield address.rstrip("/")


@cache
def said(address: str, *words: str) -> Result:
    return CliRunner().invoke(app, ["compare", "--store", address, *words])


def test_exit_status_of_compare_reflects_the_verdict_or_the_error(address: str) -> None:
    assert [said(address, "base", other).exit_code for other in ("same", "slow")] == [0, 1]
    assert said(address, "slow/0", "base/0").exit_code == 0
    assert said(address, "base", "slow", "--least-change", "60").exit_code == 0
    for wrong in (("base", "nobody"), ("base", "base"), ("base", "same/steps=0-3"), ("base", "same/ranks=99")):
        assert said(address, *wrong).exception.exit_status == 2  # type: ignore[union-attr]
    assert said("http://127.0.0.1:9", "base", "same").exception.exit_status == 3  # type: ignore[union-attr]


def test_json_of_compare_has_the_fields_of_the_guide(address: str) -> None:
    found = json.loads(said(address, "base", "slow", "--json").stdout)
    assert (found["schema"], found["verdict"]) == (1, "slower")
    assert [(each["rank"], each["host_b"]) for each in found["ranks"]] == [(3, "gpu-001")]
    assert found["step"]["b_s"] > found["step"]["a_s"]
    cells = re.findall(r"^\|([^|]+)\|", GUIDE.read_text().partition("## JSON")[2], flags=re.MULTILINE)
    documented = set(re.findall(r"`(\w+)`", " ".join(cells)))
    parts = [found["a"], found["step"], found["stages"][0], found["ranks"][0]]
    assert documented == set(found) | {name for part in parts for name in part}


def test_text_of_compare_begins_with_the_verdict_and_lists_every_stage(address: str) -> None:
    first, *lines = said(address, "base", "slow").stdout.splitlines()
    assert re.match(r"B is \d+\.\d% slower than A\. A step takes .*: rank 3 \(host gpu-001\)", first)
    assert any(line.startswith("backward-compute ") for line in lines)
    assert said(address, "base", "same").stdout.startswith("No difference beyond noise: a step takes ")
