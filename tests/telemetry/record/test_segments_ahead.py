"""Segments are created ahead of time, so that a slow disk does not delay a rank."""

import threading
from pathlib import Path
from time import monotonic_ns

import pytest

import telemetry
from telemetry.record.rank_file import RankFile, Segment, SegmentsAhead
from telemetry.record.record_buffer import scrap_words
from telemetry.record.recorder import Recorder
from telemetry.stages import Stage
from tests.deadline import until
from tests.telemetry.recording import recorded, session

SMALL = 64


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "rank-00000"
    made.mkdir()
    return made


def test_next_segment_is_created_before_the_current_one_is_full(folder: Path) -> None:
    ahead = SegmentsAhead(RankFile(folder, segment_records=SMALL))
    ahead.open_segment(0)
    until(lambda: (folder / "000001.rec").exists())
    second = ahead.open_segment(SMALL)
    assert second is not None
    assert (second.first_seq, second.name) == (SMALL, "000001.rec")
    ahead.stop()


def test_stop_deletes_the_segment_that_was_created_ahead(tmp_path: Path) -> None:
    with session(tmp_path), telemetry.span(Stage.OPTIMIZER):
        folder = recorded(tmp_path).reader.folder
        until(lambda: (folder / "000001.rec").exists())
    assert [path.name for path in folder.glob("*.rec*")] == ["000000.rec"]


def test_recorder_drops_records_instead_of_blocking_while_the_disk_hangs(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rank_file, recorder, answers = RankFile(folder, segment_records=SMALL), Recorder(), threading.Event()
    ahead = SegmentsAhead(rank_file, patience_s=0.01)
    make, calls = rank_file.make, []

    def slow(first_seq: int) -> Segment | None:
        calls.append(first_seq)
        if len(calls) == 2:
            answers.wait(60)
        return make(first_seq)

    monkeypatch.setattr(rank_file, "make", slow)
    recorder.attach(ahead, 0, scrap_words(), None)
    began = monotonic_ns()
    for _ in range(100 * SMALL):
        with recorder.span(Stage.DATA_LOAD):
            pass
    assert monotonic_ns() - began < 10_000_000_000  # recording did not wait for the disk
    assert recorder.dropped() == 99 * SMALL
    answers.set()
    until(lambda: (folder / "000001.rec").exists())
    before = recorder.next_seq()
    for _ in range(5 * SMALL):
        with recorder.span(Stage.DATA_LOAD):
            pass
    assert recorder.next_seq() > before
    recorder.detach()
    ahead.stop()


def test_segment_created_ahead_leaves_no_gap_in_the_records_after_a_kill(tmp_path: Path) -> None:
    with session(tmp_path):
        for _ in range(10):
            with telemetry.span(Stage.DATA_LOAD):
                pass
        folder = recorded(tmp_path).reader.folder
        until(lambda: (folder / "000001.rec").exists())
        left = {path.name: path.read_bytes() for path in folder.glob("*.rec")}
    for name, content in left.items():  # as SIGKILL would have left them
        (folder / name).write_bytes(content)
    with session(tmp_path), telemetry.span(Stage.OPTIMIZER):
        pass
    assert recorded(tmp_path).stages == ["data-load"] * 10 + ["optimizer"]
