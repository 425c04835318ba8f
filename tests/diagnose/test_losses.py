"""Records that found no room are told: in the store, in a diagnosis, by the rank's own count."""

from pathlib import Path
from threading import Event

import pytest
from rich.console import Console

import telemetry
from diagnose import diagnose_run
from diagnose.report.as_json import report_object
from diagnose.report.as_text import report_text
from telemetry.agent.host import Host
from telemetry.agent.loop import Agent, AgentSettings
from telemetry.record.rank_file import SEGMENT_RECORDS
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.queries import Heartbeats
from tests.deadline import until
from tests.telemetry.recording import recorded, session
from tests.telemetry.served import collecting

CAP = 4
NUM_SEGMENTS = 7
STEP_RECORDS = 4096


def record_segments(spool: Path) -> int:
    """Seven segments' worth of steps; how many records found no room."""
    with session(spool) as started:
        folder = recorded(spool).reader.folder
        for number in range(NUM_SEGMENTS * SEGMENT_RECORDS // STEP_RECORDS):
            until(lambda: len(list(folder.glob("*.rec"))) > 1, what="a segment made ahead")
            with telemetry.step(number):
                for _ in range(STEP_RECORDS - 1):
                    with telemetry.span("forward-compute"):
                        pass
    return started.stats().dropped


@pytest.fixture
def store(embedded: EmbeddedStore) -> EmbeddedStore:
    return embedded


def test_a_diagnosis_tells_which_records_are_missing_and_why(
    tmp_path: Path, store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANKSCOPE_SEGMENTS", str(CAP))
    dropped = record_segments(tmp_path)
    with collecting(store) as collector:
        settings = AgentSettings(spool=tmp_path, collector=collector.url, interval_s=0.02, appear_s=0.0)
        Agent(Host(tmp_path), collector, settings).run(Event())
        report = diagnose_run(collector, "test", 0)
        (beat,) = collector.read(Heartbeats(run_id="test", attempt=0)).to_pylist()
    assert beat["dropped"] == dropped >= 2 * SEGMENT_RECORDS
    (loss,) = report_object(report)["losses"]
    assert loss["rank"] == 0
    assert loss["text"].startswith(f"{dropped // SEGMENT_RECORDS * SEGMENT_RECORDS} records of ")
    console = Console(width=300)
    with console.capture() as told:
        console.print(report_text(report))
    assert f"rank 0 misses {dropped // SEGMENT_RECORDS * SEGMENT_RECORDS} records" in told.get()
    assert f"before step {loss['step']}: rank files were at their cap" in told.get()
