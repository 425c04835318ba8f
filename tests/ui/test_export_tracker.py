"""A run in an experiment tracker: its values and findings, each exported once, also for a live run."""

import json
import math
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from diagnose.pipeline import diagnose_run
from diagnose.run_curves import STAGE_SECONDS, STEP_SECONDS, step_values
from telemetry.exports.trackers.interface import StepValues
from telemetry.stages import Stage
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from telemetry.stores.queries import Samples, Spans, Steps
from tests.memory_store import memory_store
from tests.telemetry.made_rows import insert, made
from tests.telemetry.served import collecting
from tests.ui.recorded_tracker import RecordedTracker
from tests.ui.synthetic_run import SyntheticRun
from ui.cli.export_tracker import TrackerExport
from ui.cli.main import app

NAME, NUM_STEPS = "gpt-13b", 30


@pytest.fixture(scope="module")
def store() -> Iterator[EmbeddedStore]:
    run = SyntheticRun(run_id=NAME)
    with memory_store() as store:
        run.introduce(store)
        run.advance(store, NUM_STEPS)
        run.beat(store, at_ns=run.now_ns, ended=True)
        yield store


@pytest.fixture(scope="module")
def collector(store: EmbeddedStore) -> Iterator[str]:
    with collecting(store) as client:
        yield client.url


def export(collector: str, *arguments: object) -> Result:
    return CliRunner().invoke(app, ["export", *map(str, arguments), "--store", collector])


def events_in(folder: Path, **options: Any) -> Any:
    """What TensorBoard reads. It is loaded here, because it takes half a second, and each worker collects this file."""
    accumulator = import_module("tensorboard.backend.event_processing.event_accumulator").EventAccumulator
    return accumulator(str(folder), **options).Reload()


def all_values(store: EmbeddedStore) -> list[StepValues]:
    found = step_values(StoreReader(store), NAME, 0, first_step=0, last_step=NUM_STEPS)
    return [of_step for steps in found for of_step in steps]


def test_each_step_has_its_samples_step_time_and_time_by_stage(store: EmbeddedStore) -> None:
    reader, steps = StoreReader(store), all_values(store)
    assert [of_step.step for of_step in steps] == list(range(NUM_STEPS))
    samples = reader.read(Samples(run_id=NAME, attempt=0, metrics=("loss",)))["value"].to_pylist()
    assert [of_step.values["loss"] for of_step in steps] == samples
    times = reader.read(Steps(run_id=NAME, attempt=0))["duration_ns"].to_pylist()
    assert [of_step.values[STEP_SECONDS] for of_step in steps] == pytest.approx([ns / 1e9 for ns in times])
    sends = reader.read(Spans(run_id=NAME, attempt=0, first_step=7, last_step=7, stages=(int(Stage.FORWARD_SEND),)))
    send_s = sum(sends["duration_ns"].to_pylist()) / len(sends["rank"].unique()) / 1e9
    assert steps[7].values[f"{STAGE_SECONDS}forward-send"] == pytest.approx(send_s)


def test_a_live_run_is_exported_step_by_step_and_each_step_once(embedded: EmbeddedStore) -> None:
    """The newest step of a query may be incomplete. It is exported after the next query."""
    run, tracker = SyntheticRun(run_id=NAME, slow={}), RecordedTracker()
    run.introduce(embedded)
    following = TrackerExport(
        reader=StoreReader(embedded), tracker=tracker, run_id=NAME, attempt=0, next_step=0, last_step=10**6
    )
    following.advance()
    assert tracker.steps == []
    run.advance(embedded, 10, late={3})
    following.advance()
    assert tracker.steps == []
    run.advance(embedded, 2)
    following.advance()
    assert [of_step.step for of_step in tracker.steps] == list(range(9))
    following.advance()
    assert [of_step.step for of_step in tracker.steps] == list(range(11))
    following.finish()
    assert [of_step.step for of_step in tracker.steps] == list(range(12))


def test_findings_are_written_only_if_they_changed(store: EmbeddedStore) -> None:
    reader, tracker = StoreReader(store), RecordedTracker()
    exported = TrackerExport(reader=reader, tracker=tracker, run_id=NAME, attempt=0, next_step=0, last_step=NUM_STEPS)
    exported.finish()
    exported.finish()
    (events,) = tracker.events
    findings = diagnose_run(reader, NAME, 0).findings
    assert [(event.kind, event.severity, event.summary) for event in events] == [
        (finding.kind, finding.severity, finding.headline) for finding in findings
    ]
    assert "compute-straggler" in {event.kind for event in events}


def test_tensorboard_reads_scalars_and_findings_of_an_export(
    collector: str, store: EmbeddedStore, tmp_path: Path
) -> None:
    answer = export(collector, "tensorboard", NAME, "--out", tmp_path / "events", "--json")
    assert answer.exit_code == 0, answer.output
    said = json.loads(answer.stdout)
    events = events_in(tmp_path / "events", size_guidance={"scalars": 0, "tensors": 0})
    steps = all_values(store)
    assert set(events.Tags()["scalars"]) == {name for of_step in steps for name in of_step.values}
    losses = events.Scalars("loss")
    assert [point.step for point in losses] == list(range(NUM_STEPS))
    assert [point.value for point in losses] == pytest.approx([of_step.values["loss"] for of_step in steps])
    assert [point.wall_time for point in losses] == pytest.approx([of_step.at_ns / 1e9 for of_step in steps])
    assert said["steps"] == NUM_STEPS
    assert said["values"] == sum(len(events.Scalars(tag)) for tag in events.Tags()["scalars"])
    (text,) = events.Tensors("rankscope/findings")[0].tensor_proto.string_val
    assert "| warning | compute-straggler | " in text.decode().replace("critical", "warning")
    assert (tmp_path / "events").stat().st_mode & 0o077 == 0


def test_nan_loss_is_exported_as_nan(embedded: EmbeddedStore, tmp_path: Path) -> None:
    run = SyntheticRun(run_id=NAME)
    run.introduce(embedded)
    run.advance(embedded, 3)
    values = [{"rank": 7, "seq": 10_000, "step": 1, "at_ns": run.now_ns, "metric": "loss", "value": math.nan}]
    insert(embedded, "samples", made("samples", values), run_id=NAME)
    with collecting(embedded) as client:
        assert export(client.url, "tensorboard", NAME, "--out", tmp_path / "events").exit_code == 0
    losses = events_in(tmp_path / "events").Scalars("loss")
    assert [math.isnan(point.value) for point in losses] == [False, True, False]


def test_export_rejects_an_output_folder_that_contains_files(collector: str, tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("mine")
    answer = export(collector, "tensorboard", NAME, "--out", tmp_path)
    assert answer.exit_code != 0
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]


@pytest.mark.parametrize(("first", "last", "steps"), [(5, 9, 5), (25, 99, 5)])
def test_a_window_of_steps_is_exported(collector: str, tmp_path: Path, first: int, last: int, steps: int) -> None:
    chosen = ("--first-step", first, "--last-step", last, "--out", tmp_path / "events", "--json")
    assert json.loads(export(collector, "tensorboard", NAME, *chosen).stdout)["steps"] == steps
