"""`rankscope export perfetto` as a user runs it, for a simulated run in the store of a collector."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from telemetry.stages import Stage
from telemetry.stores.queries import Spans
from telemetry.wire.client import CollectorClient
from tests.diagnose.trace.opened import opened_json
from tests.memory_store import memory_store
from tests.scenarios.command import Answer, rankscope, run_code
from tests.telemetry.made_profiles import Profile
from tests.telemetry.served import collecting


@pytest.fixture(scope="module")
def collector() -> Iterator[CollectorClient]:
    """A collector with a run of eight ranks on two hosts, twelve steps."""
    grid = ("--dp", 2, "--pp", 2, "--tp", 2, "--steps", 12, "--ranks-per-host", 4)
    with memory_store() as store, collecting(store) as client:
        answer = rankscope("simulate", *grid, "--name", "made", "--store", client.url)
        assert answer.status == 0, answer.error
        yield client


@pytest.fixture(scope="module")
def store(collector: CollectorClient) -> str:
    return collector.url


def export(store: str, *arguments: object) -> Answer:
    return rankscope("export", "perfetto", *arguments, "--store", store)


def test_export_of_a_simulated_run_writes_a_trace_with_the_reported_counts(store: str, tmp_path: Path) -> None:
    answer = export(store, "made", "--out", tmp_path / "made.json.gz", "--json")
    assert answer.status == 0, answer.error
    report = json.loads(answer.out)
    trace = opened_json(tmp_path / "made.json.gz")
    assert (report["run"], report["first_step"], report["last_step"], report["format"]) == ("made", 2, 11, "json")
    assert report["bytes"] == (tmp_path / "made.json.gz").stat().st_size
    assert (report["spans"], report["flows"]) == (len(trace.slices), len(trace.arrows))
    assert report["clocks"]["unaligned"] == []
    assert "Clocks of 2 hosts aligned within" in answer.error


def test_export_adds_kineto_files_to_the_ranks_that_recorded_them(
    store: str, collector: CollectorClient, tmp_path: Path
) -> None:
    query = Spans(run_id="made", attempt=0, first_step=5, last_step=5, ranks=(6,), stages=(Stage.STEP,))
    begin_ns = collector.read(query)["start_ns"][0].as_py()
    told = {"baseTimeNanoseconds": begin_ns, "host_name": "elsewhere"}
    profile = Profile(rank=6, world_size=8, told=told).host("cpu_op", "aten::mm", 5, 7)
    path = profile.save(tmp_path, "rank6.json.gz")
    answer = export(store, "made", "--kineto", path, "--out", tmp_path / "made.json", "--json")
    assert answer.status == 0, answer.error
    report = json.loads(answer.out)
    added = {"rank": 6, "source": str(path), "events": 1, "flows": 0, "clock_error_ns": None}
    assert (report["first_step"], report["last_step"], report["profiles"]) == (5, 5, [added])
    assert "recorded on host elsewhere" in answer.error
    trace = opened_json(tmp_path / "made.json")
    (event,) = [each for each in trace.slices if each.name == "aten::mm"]
    assert trace.processes[event.pid].startswith("rank 6 ")


@pytest.mark.parametrize(("form", "ending"), [("json", ".json.gz"), ("protobuf", ".perfetto-trace")])
def test_default_file_name_contains_run_and_steps(
    store: str, form: str, ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = rankscope("export", "perfetto", "--last-step", "3", "--format", form, RANKSCOPE_STORE=store)
    assert done.status == 0, done.error
    assert [entry.name for entry in tmp_path.iterdir()] == [f"made-steps-0-3{ending}"]
    assert "ui.perfetto.dev" in done.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nobody",), "no run 'nobody'"),
        (("--ranks", "0-99"), "ranks of this run are 0 to 7"),
        (("--first-step", 90), "steps 0 to 11 of made are stored"),
        (("--out", "/nowhere/at/all.json"), "hint: use --out"),
        (("--profiles",), "these ranks have no stored profile"),
        (("--kineto", "/nowhere.json"), "/nowhere.json: No such file"),
        (("--kineto", __file__), "is not complete JSON"),
    ],
)
def test_invalid_export_options_are_reported_without_a_traceback(
    store: str, arguments: tuple[object, ...], words: str
) -> None:
    answer = export(store, *arguments)
    assert answer.status == 2, answer.error
    assert words in answer.error
    assert "Traceback" not in answer.error


def test_export_from_an_unreachable_store_exits_with_status_3_and_writes_no_file(tmp_path: Path) -> None:
    answer = export("http://127.0.0.1:1", "--out", tmp_path / "trace.json")
    assert (answer.status, list(tmp_path.iterdir())) == (3, []), answer.error


@pytest.mark.parametrize("form", ["json", pytest.param("protobuf", marks=pytest.mark.long)])
def test_export_on_a_full_disk_leaves_no_file(store: str, form: str, tmp_path: Path) -> None:
    """A file size limit of 16 KiB acts like a full disk."""
    options = ("export", "perfetto", "--store", store, "--out", tmp_path / "trace.gz", "--format", form)
    done = run_code(WITH_A_LIMIT, *options)
    assert done.status == 2, done.out
    assert ("hint: use --out" in done.out, "Traceback" in done.out) == (True, False)
    assert list(tmp_path.iterdir()) == []


WITH_A_LIMIT = """
import resource
from ui.cli.main import main
resource.setrlimit(resource.RLIMIT_FSIZE, (16384, 16384))
main()
"""
