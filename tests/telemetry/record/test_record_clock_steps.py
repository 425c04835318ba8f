"""The wall clock is set while a rank records: no record is lost or reordered, and the rank counts as alive."""

import os
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

import telemetry
from telemetry.agent.tail import RankTail
from telemetry.evidence.rank_state import is_alive
from telemetry.record.rank_file import SEGMENT_RECORDS
from telemetry.record.reader import RankReader
from telemetry.stages import Stage
from tests.deadline import until
from tests.telemetry.recording import recorded, session

HOUR_NS = 3600 * 10**9
CHECK_EVERY = 256
"""Number of records between two checks for the next segment. Far fewer than a segment holds."""


@pytest.mark.parametrize("step_ns", [-HOUR_NS, pytest.param(HOUR_NS, marks=pytest.mark.long)])
def test_wall_clock_step_does_not_reorder_or_lose_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step_ns: int
) -> None:
    with session(tmp_path):
        folder = recorded(tmp_path).reader.folder
        until(lambda: (folder / "000001.rec").exists())
        monkeypatch.setattr("telemetry.record.clocks.interface.time_ns", lambda: time.time_ns() + step_ns)
        for number in range(2 * SEGMENT_RECORDS + 10):
            with telemetry.span(Stage.DATA_LOAD):
                pass
            if number % CHECK_EVERY == 0:
                until(lambda: has_next_segment(folder))
    tail, starts = RankTail(folder), []
    while chunk := tail.read():
        starts += chunk.tables["spans"]["start_ns"].to_pylist()
        tail.shipped(chunk)
    assert len(starts) == 2 * SEGMENT_RECORDS + 10
    assert np.all(np.diff(starts) >= 0)
    assert abs(starts[-1] - time.time_ns()) < HOUR_NS // 2


def has_next_segment(folder: Path) -> bool:
    """Whether the segment after the current one exists already."""
    return len(list(folder.glob("*.rec"))) * SEGMENT_RECORDS > RankReader(folder).live().recorded + SEGMENT_RECORDS


def test_rank_counts_as_alive_after_the_wall_clock_was_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with session(tmp_path):
        identity = recorded(tmp_path).reader.identity()
        born = psutil.Process().create_time()
        monkeypatch.setattr(psutil.Process, "create_time", lambda _: born + 3600)
        assert identity.pid == os.getpid()
        assert is_alive(identity, recorded(tmp_path).reader.folder)
