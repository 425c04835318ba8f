"""`rankscope runs`: the runs that it lists."""

import json
from collections.abc import Iterator

import pytest
from click.testing import Result
from typer.testing import CliRunner

from telemetry.collector.server import create_app
from telemetry.collector.settings import CollectorSettings
from telemetry.errors import UsageError
from telemetry.finding_log import MAX_TEXT
from telemetry.topology import Topology
from tests.benchmarks.many_runs import MadeRuns
from tests.each_case import each_case
from tests.memory_store import memory_store
from tests.ui.served_dashboard import serving_app
from ui.cli.main import app
from ui.cli.readers import open_reader
from ui.cli.runs import NEWEST
from ui.dashboard.data import Reads
from ui.dashboard.tools.answers import describe_run
from ui.dashboard.tools.parameters import RunParameters

NUMBER = NEWEST + 3


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Address of a collector that holds more runs than are listed by default."""
    with memory_store() as store:
        names = tuple(f"run-{one:02d}" for one in range(NUMBER))
        MadeRuns(names=names, topology=Topology(dp=2), num_steps=3).store(store)
        with serving_app(create_app(store, CollectorSettings())) as address:
            yield address.rstrip("/")


def listed(address: str, *options: str) -> Result:
    result = CliRunner().invoke(app, ["runs", "--store", address, *options])
    assert result.exit_code == 0, result.output
    return result


def test_the_newest_runs_are_listed_and_the_others_counted(address: str) -> None:
    result = listed(address)
    names = [line.split()[0] for line in result.stdout.splitlines()[1:]]
    assert names == [f"run-{one:02d}" for one in range(NUMBER - 1, NUMBER - 1 - NEWEST, -1)]
    assert "3 older runs are not shown" in result.stderr


def test_limit_option_sets_the_number_of_listed_runs_and_zero_lists_all(address: str) -> None:
    assert len(listed(address, "--limit", "2").stdout.splitlines()) == 1 + 2
    assert "1 older run is not shown" in listed(address, "--limit", str(NUMBER - 1)).stderr
    everything = listed(address, "--limit", "0")
    assert len(everything.stdout.splitlines()) == 1 + NUMBER
    assert everything.stderr == ""


def test_json_lists_all_runs_unless_it_is_limited(address: str) -> None:
    whole, cut = (json.loads(listed(address, "--json", *limit).stdout) for limit in ((), ("--limit", "2")))
    assert len(whole["runs"]) == whole["num_runs"] == cut["num_runs"] == NUMBER
    assert cut["runs"] == whole["runs"][:2]
    assert (cut["runs"][0]["num_ranks"], cut["runs"][0]["first_step"], cut["runs"][0]["last_step"]) == (2, 0, 2)


def test_tags_are_added_removed_listed_and_select_runs(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    for run, *words in (
        ("run-03", "baseline", "driver-560"),
        ("run-01", "baseline", "old"),
        ("run-01", "--remove", "old"),
    ):
        done = CliRunner().invoke(app, ["runs", "tag", run, *words, "--by", "Ada", "--store", address])
        assert done.exit_code == 0, done.output
    assert done.stdout == "run-01: tag old removed\n"
    rows = [line.split() for line in listed(address, "--tag", "baseline").stdout.splitlines()[1:]]
    assert [(row[0], row[9:]) for row in rows] == [("run-03", ["baseline", "driver-560"]), ("run-01", ["baseline"])]
    found = json.loads(listed(address, "--tag", "driver-560", "--json").stdout)
    assert (found["num_runs"], found["runs"][0]["tags"]) == (1, ["baseline", "driver-560"])
    assert listed(address, "--tag", "old").stdout == "no run has the tag old\n"


def test_note_is_stored_as_one_line_and_returned_with_its_name(address: str) -> None:
    done = CliRunner().invoke(
        app, ["runs", "note", "run-05", "node 12\nis replaced", "--by", "Ada", "--store", address]
    )
    assert (done.exit_code, done.stdout) == (0, "run-05: note by Ada is stored\n")
    with open_reader(address) as reader:
        found = describe_run(RunParameters(run="run-05"), Reads(reader), reader)
    assert [(note["who"], note["text"]) for note in found["notes"]] == [("Ada", "node 12 is replaced")]


def test_note_that_is_too_long_is_refused_and_not_cut(address: str) -> None:
    done = CliRunner().invoke(app, ["runs", "note", "run-05", "x" * (MAX_TEXT + 1), "--by", "Ada", "--store", address])
    assert isinstance(done.exception, UsageError)
    assert f"at most {MAX_TEXT} characters" in done.exception.message


@each_case(
    ("words", "why"),
    [
        (["run-03"], "no tag is given"),
        (["run-03", "two words"], "not a valid tag"),
        (["run-03", "fine", "--remove", "never-set"], "there is no tag 'never-set'"),
        (["no-such-run", "fine"], "no run no-such-run"),
    ],
)
def test_tag_command_refuses_what_it_cannot_store(address: str, words: list[str], why: str) -> None:
    done = CliRunner().invoke(app, ["runs", "tag", *words, "--store", address])
    assert isinstance(done.exception, UsageError)
    assert why in str(done.exception)
