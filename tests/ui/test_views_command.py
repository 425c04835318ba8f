"""`rankscope views`: views are saved, listed and removed, and those of a run are separate from those of all runs."""

import json
from collections.abc import Iterator

import pytest
from click.testing import Result
from typer.testing import CliRunner

from telemetry.collector.server import create_app
from telemetry.collector.settings import CollectorSettings
from telemetry.errors import UsageError
from telemetry.topology import Topology
from tests.benchmarks.many_runs import MadeRuns
from tests.each_case import each_case
from tests.memory_store import memory_store
from tests.ui.served_dashboard import serving_app
from ui.cli.main import app


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with memory_store() as store:
        MadeRuns(names=("first", "second"), topology=Topology(dp=2), num_steps=3).store(store)
        with serving_app(create_app(store, CollectorSettings())) as address:
            yield address.rstrip("/")


def views(address: str, *words: str) -> Result:
    return CliRunner().invoke(app, ["views", *words, "--store", address])


def test_views_are_saved_from_an_address_listed_for_a_run_and_removed(address: str) -> None:
    assert "no view is saved" in views(address).stdout
    page = "http://127.0.0.1:8719/?view=timeline&run=first&step=2"
    assert views(address, "save", "slow step", page, "--run", "first", "--by", "Ada").stdout == (
        "first: view slow step saved\n"
    )
    assert views(address, "save", "grid", "?view=grid", "--by", "Ada").stdout == "all runs: view grid saved\n"
    of_first, of_second = (json.loads(views(address, "--run", run, "--json").stdout) for run in ("first", "second"))
    assert [(view["run"], view["name"], view["address"], view["by"]) for view in of_first["views"]] == [
        ("", "grid", "?view=grid", "Ada"),
        ("first", "slow step", "?view=timeline&run=first&step=2", "Ada"),
    ]
    assert of_second["views"] == of_first["views"][:1]
    assert "first: slow step, saved by Ada at " in views(address).stdout
    assert views(address, "remove", "grid").stdout == "all runs: view grid removed\n"
    assert "grid" not in views(address).stdout


@each_case(
    ("words", "why"),
    [
        (["save", "home", "http://127.0.0.1:8719/"], "this is not the address of a view"),
        (["save", "x", "?view=grid", "--run", "gpt-9"], "no run gpt-9 is stored"),
        (["remove", "never-saved"], "there is no view 'never-saved'"),
    ],
)
def test_views_command_refuses_what_it_cannot_store(address: str, words: list[str], why: str) -> None:
    done = views(address, *words)
    assert isinstance(done.exception, UsageError)
    assert why in str(done.exception)
