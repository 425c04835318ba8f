"""MLflow, W&B and Trackio receive a run through their own clients, without a server, and return it.

These clients are large. A test is skipped if its client is not installed:

    pip install mlflow wandb trackio
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from telemetry.exports.trackers.interface import StepValues
from telemetry.stores.embedded import EmbeddedStore
from tests.memory_store import memory_store
from tests.telemetry.served import collecting
from tests.ui.synthetic_run import SyntheticRun
from tests.ui.test_export_tracker import NAME, NUM_STEPS, all_values

STEPS_OF_LOSS = list(range(NUM_STEPS))


@pytest.fixture(scope="module")
def store() -> Iterator[EmbeddedStore]:
    run = SyntheticRun(run_id=NAME)
    with memory_store() as store:
        run.introduce(store)
        run.advance(store, NUM_STEPS)
        run.beat(store, at_ns=run.now_ns, ended=True)
        yield store


@pytest.fixture(scope="module")
def steps(store: EmbeddedStore) -> list[StepValues]:
    return all_values(store)


def export(store: EmbeddedStore, tracker: str, folder: Path, **variables: str) -> dict[str, Any]:
    """What the command prints as JSON. It runs in ``folder``, in a separate process: clients keep global state."""
    with collecting(store) as client:
        ended = subprocess.run(
            [sys.executable, "-m", "ui.cli", "export", tracker, NAME, "--store", client.url, "--json"],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **variables},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
    assert ended.returncode == 0, ended.stderr
    said: dict[str, Any] = json.loads(ended.stdout)
    assert said["steps"] == NUM_STEPS
    return said


def expected(steps: list[StepValues], name: str) -> list[float]:
    return [of_step.values[name] for of_step in steps]


@pytest.mark.long
@pytest.mark.filterwarnings("default")
def test_mlflow_stores_metrics_with_their_times_and_the_findings(
    store: EmbeddedStore, steps: list[StepValues], tmp_path: Path
) -> None:
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed")
    pytest.importorskip("sqlalchemy", reason="mlflow is not installed with its store")
    address = f"sqlite:///{tmp_path / 'mlflow.db'}"
    export(store, "mlflow", tmp_path, MLFLOW_TRACKING_URI=address)
    client = mlflow.MlflowClient(tracking_uri=address)
    (run,) = client.search_runs([client.get_experiment_by_name("rankscope").experiment_id])
    losses = sorted(client.get_metric_history(run.info.run_id, "loss"), key=lambda metric: metric.step)
    assert [metric.step for metric in losses] == STEPS_OF_LOSS
    assert [metric.value for metric in losses] == pytest.approx(expected(steps, "loss"))
    assert [metric.timestamp for metric in losses] == [of_step.at_ns // 1_000_000 for of_step in steps]
    assert set(run.data.metrics) == {name for of_step in steps for name in of_step.values}
    assert run.info.status == "FINISHED"
    assert run.info.run_name == f"{NAME}/0"
    assert run.data.tags["rankscope.ranks"] == "8"
    assert "compute-straggler" in run.data.tags["rankscope.findings"]
    findings = json.loads((tmp_path / "mlruns").rglob("findings.json").__next__().read_text())
    assert "compute-straggler" in {row[2] for row in findings["data"]}


@pytest.mark.long
@pytest.mark.filterwarnings("default")
def test_wandb_writes_history_and_findings_offline_and_nothing_about_this_machine(
    store: EmbeddedStore, steps: list[StepValues], tmp_path: Path
) -> None:
    pytest.importorskip("wandb", reason="wandb is not installed")
    export(store, "wandb", tmp_path, WANDB_MODE="offline", WANDB_DIR=str(tmp_path))
    (path,) = tmp_path.rglob("*.wandb")
    records = list(wandb_records(path))
    history = [
        {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item}
        for record in records
        if record.WhichOneof("record_type") == "history"
    ]
    rows = [row for row in history if "loss" in row]
    assert [row["_step"] for row in rows] == STEPS_OF_LOSS
    for name in ("loss", "rankscope/step-seconds", "rankscope/stage-seconds/forward-compute"):
        assert [row[name] for row in rows] == pytest.approx(expected(steps, name))
    key = "rankscope/findings/_type"
    assert [row[key] for row in history if key in row] == ["table-file"]
    (table,) = tmp_path.rglob("*.table.json")
    assert "compute-straggler" in {row[2] for row in json.loads(table.read_text())["data"]}
    names = {found.name for found in tmp_path.rglob("*") if found.is_file()}
    assert not names & {"requirements.txt", "wandb-metadata.json", "output.log"}
    assert not [record for record in records if record.WhichOneof("record_type") == "stats"]


def wandb_records(path: Path) -> Iterator[Any]:
    """The records of an offline run: a log in the format of LevelDB, of the client's protocol buffers.

    7 bytes | block of 32 KiB: checksum 4, length 2, kind 1 (1 whole, 2 first, 3 middle, 4 last), data ... | block
    """
    from wandb.proto.wandb_internal_pb2 import Record  # noqa: PLC0415 - not installed everywhere

    data, at, parts = path.read_bytes(), 7, []
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        parts.append(data[at + 7 : at + 7 + length])
        at += 7 + length
        if kind in (1, 4):
            yield Record.FromString(b"".join(parts))
            parts = []


@pytest.mark.long
@pytest.mark.filterwarnings("default")
def test_trackio_stores_values_and_findings_as_alerts(
    store: EmbeddedStore, steps: list[StepValues], tmp_path: Path
) -> None:
    pytest.importorskip("trackio", reason="trackio is not installed")
    export(store, "trackio", tmp_path, TRACKIO_DIR=str(tmp_path / "trackio"))
    found = trackio_run(tmp_path)
    rows = found["logs"]
    assert [row["step"] for row in rows] == STEPS_OF_LOSS
    for name in ("loss", "rankscope/step-seconds"):
        assert [row[name] for row in rows] == pytest.approx(expected(steps, name))
    assert any("compute-straggler" in alert["title"] for alert in found["alerts"])


def trackio_run(folder: Path) -> Mapping[str, Any]:
    """Logs and alerts of the only run, read by the client in a separate process: its folder is fixed at import."""
    script = (
        "import json, trackio\n"
        "from trackio.sqlite_storage import SQLiteStorage\n"
        "run = trackio.Api().runs('rankscope')[0]\n"
        "print(json.dumps({'logs': SQLiteStorage.get_logs('rankscope', run.name), 'alerts': run.alerts()}))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TRACKIO_DIR": str(folder / "trackio")}
    ended = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return found
