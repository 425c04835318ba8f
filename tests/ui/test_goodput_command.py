"""`rankscope goodput`: the ledger of a stored run as text and JSON."""

import json
from collections.abc import Iterator

import pytest
from click.testing import Result
from typer.testing import CliRunner

from diagnose.goodput.records import CLASSES
from telemetry.collector.server import create_app
from telemetry.collector.settings import CollectorSettings
from tests.memory_store import memory_store
from tests.ui.driven_run import NAME, store_driven_run
from tests.ui.served_dashboard import serving_app
from tests.ui.simulated_run import store_simulated
from ui.cli.main import app


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with memory_store() as store:
        store_simulated(store, "simulated", num_steps=20)
        store_driven_run(store)
        with serving_app(create_app(store, CollectorSettings())) as address:
            yield address.rstrip("/")


def said(address: str, *words: str) -> Result:
    return CliRunner().invoke(app, ["goodput", "--store", address, *words])


def test_json_of_goodput_has_every_class_and_the_incident_of_a_driven_run(address: str) -> None:
    result = said(address, NAME, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["schema"], found["run"], found["attempts"]) == (1, NAME, [0, 1])
    assert list(found["classes"]) == [str(name) for name in CLASSES]
    assert sum(found["classes"].values()) == pytest.approx(found["wall_s"], abs=1e-6)
    assert found["goodput"] == pytest.approx(found["classes"]["useful"] / found["wall_s"], abs=1e-6)
    assert found["classes"]["waiting-for-nodes"] == 40
    assert found["classes"]["checking"] == 3 + 3 + 3
    assert found["classes"]["detecting"] == pytest.approx(2, abs=0.01)
    (incident,) = found["incidents"]
    assert (incident["cause"], incident["nodes"], incident["attempt"]) == ("rank-failed", ["node-b"], 0)
    assert incident["cost_s"] > 40 + 3 + 3 + 2
    assert found["unknown"] == []


def test_text_of_goodput_begins_with_the_run_and_lists_classes_and_incidents(address: str) -> None:
    result = said(address, NAME)
    assert result.exit_code == 0, result.output
    first, *lines = result.stdout.splitlines()
    assert first.startswith(f"run {NAME}, 2 attempts, wall time ")
    assert "goodput " in first
    assert any(line.split()[:2] == ["waiting-for-nodes", "40.0"] for line in lines)
    assert "attempt 0, rank-failed on node-b: rank 3 was killed by SIGKILL on node-b" in lines


def test_goodput_without_a_run_name_uses_a_stored_run_and_a_simulated_run_has_one_attempt(address: str) -> None:
    assert json.loads(said(address, "--json").stdout)["run"] in (NAME, "simulated")
    found = json.loads(said(address, "simulated", "--json").stdout)
    assert (found["attempts"], found["incidents"]) == ([0], [])
    assert found["goodput"] > 0.9


def test_an_unknown_run_and_an_unreachable_store_have_their_exit_status(address: str) -> None:
    assert said(address, "nobody").exception.exit_status == 2  # type: ignore[union-attr]
    assert said("http://127.0.0.1:9", NAME).exception.exit_status == 3  # type: ignore[union-attr]
