"""Dropped records are reported in the store, in a diagnosis and in the count of the rank."""

from pathlib import Path
from threading import Event

import pytest
from rich.console import Console

import telemetry
from diagnose import diagnose_run
from diagnose.model.marks import load_losses
from diagnose.report.as_json import report_object
from diagnose.report.as_text import report_text
from telemetry.agent.host import Host
from telemetry.agent.loop import Agent
from telemetry.agent.settings import AgentSettings
from telemetry.record.rank_file import SEGMENT_RECORDS
from telemetry.records import SPANS_DROPPED
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from telemetry.stores.queries import Heartbeats
from tests.deadline import until
from tests.telemetry.made_rows import insert, made
from tests.telemetry.recording import recorded, session
from tests.telemetry.served import collecting

DROPPED = "spans of data-load: a span of another thread or asyncio task was open at the same time"
CAP = 4
NUM_SEGMENTS = 7
STEP_RECORDS = 4096


def record_segments(spool: Path) -> int:
    """Record the steps of seven segments. Returns how many records were dropped."""
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


def test_diagnosis_reports_how_many_records_a_rank_lost_and_why(
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
    assert f"rank 0 lost {dropped // SEGMENT_RECORDS * SEGMENT_RECORDS} records" in told.get()
    assert f"before step {loss['step']}: rank files reached their size limit" in told.get()


def test_a_diagnosis_adds_up_the_spans_that_ranks_dropped(store: EmbeddedStore) -> None:
    counts = ((0, 1), (0, 1), (1, 1), (0, 2), (1, 1))
    rows = [
        {"rank": rank, "seq": seq, "step": 10 + seq, "at_ns": seq, "name": SPANS_DROPPED}
        | {"text": f"{count} span{'s' if count > 1 else ''} {DROPPED.removeprefix('spans ')}"}
        for seq, (rank, count) in enumerate(counts)
    ]
    insert(store, "marks", made("marks", rows), run_id="test")
    losses = load_losses(StoreReader(store), "test", 0)
    assert [(loss.rank, loss.step, loss.text) for loss in losses] == [
        (0, 13, f"4 {DROPPED}"),
        (1, 14, f"2 {DROPPED}"),
    ]


def test_a_diagnosis_says_that_spans_of_a_thread_were_dropped(tmp_path: Path, store: EmbeddedStore) -> None:
    with session(tmp_path):
        for _ in range(5):
            outer, inner = telemetry.span("evaluation"), telemetry.span("data-load")
            outer.__enter__()
            inner.__enter__()
            outer.__exit__(None, None, None)  # the two overlap, as those of two threads do
            inner.__exit__(None, None, None)
    with collecting(store) as collector:
        settings = AgentSettings(spool=tmp_path, collector=collector.url, interval_s=0.02, appear_s=0.0)
        Agent(Host(tmp_path), collector, settings).run(Event())
        report = diagnose_run(collector, "test", 0)
        (beat,) = collector.read(Heartbeats(run_id="test", attempt=0)).to_pylist()
    assert beat["dropped"] == 5
    console = Console(width=400)
    with console.capture() as printed:
        console.print(report_text(report))
    assert "rank 0 lost 5 spans of data-load" in printed.get()
    assert "use rankscope.record_span" in printed.get()
