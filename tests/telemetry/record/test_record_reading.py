"""Reading rank files: of killed processes, torn, truncated, damaged, or not rank files at all."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import telemetry
from telemetry.errors import UnreadableError, UsageError
from telemetry.files.private_files import open_folder
from telemetry.record.clocks.interface import measure_anchor
from telemetry.record.layout import HEADER_BYTES, RECORD_BYTES
from telemetry.record.reader import RankReader, find_rank_dirs, no_rank_file
from telemetry.record.segments import list_segments
from telemetry.record.state_page import StatePage
from telemetry.stages import Stage
from tests.deadline import until
from tests.scenarios.command import run_code
from tests.telemetry.recording import Recorded, recorded, session

WRITER = """
import sys, telemetry
telemetry.start("test", spool=sys.argv[1], agent=False)
number = 0
while True:
    with telemetry.step(number):
        for microbatch in range(100):
            with telemetry.span("forward-send", microbatch=microbatch, size_bytes=number):
                pass
    number += 1
    if number % 10 == 0:
        print(number, flush=True)
"""


def write_some(spool: Path, count: int = 10) -> Recorded:
    with session(spool):
        for number in range(count):
            with telemetry.span(Stage.DATA_LOAD, microbatch=number):
                pass
    return recorded(spool)


def test_sigkill_loses_no_committed_record(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        finished = [int(writer.stdout.readline()) for _ in range(20)][-1]
        writer.send_signal(signal.SIGKILL)
        writer.wait()
    found = recorded(tmp_path)
    steps = found.spans[found.spans["stage"] == Stage.STEP]["step"].tolist()
    assert steps == list(range(len(steps)))
    assert len(steps) >= finished
    of_writer = found.spans[found.spans["stage"] != Stage.GC]  # Python may collect garbage meanwhile
    whole = of_writer[of_writer["step"] < finished]
    assert len(whole) == finished * 101


def test_reader_returns_all_records_before_a_torn_record(tmp_path: Path) -> None:
    reader = write_some(tmp_path, 10).reader
    segment = reader.folder / "000000.rec"
    raw = bytearray(segment.read_bytes())
    raw[HEADER_BYTES + 7 * RECORD_BYTES + 60] ^= 0xFF
    segment.write_bytes(raw)
    assert reader.read(0).records["microbatch"].tolist() == list(range(7))


def test_truncated_segment_is_read_up_to_its_last_whole_record(tmp_path: Path) -> None:
    reader = write_some(tmp_path, 10).reader
    os.truncate(reader.folder / "000000.rec", HEADER_BYTES + 4 * RECORD_BYTES + 10)
    assert len(reader.read(0).records) == 4


@pytest.mark.parametrize("garbage", [b"", b"GIF89a", bytes(8192)])
def test_segment_of_garbage_raises_a_clear_error(tmp_path: Path, garbage: bytes) -> None:
    reader = write_some(tmp_path).reader
    (reader.folder / "000000.rec").write_bytes(garbage)
    with pytest.raises(UnreadableError, match="not a segment of a rank file"):
        reader.read(0)


def test_records_after_a_damaged_segment_are_read(tmp_path: Path) -> None:
    reader = write_some(tmp_path, 10).reader
    write_some(tmp_path, 5)
    (reader.folder / "000000.rec").write_bytes(b"garbage")
    block = reader.read(0)
    assert (block.first_seq, block.lost, len(block.records)) == (10, 10, 5)
    with pytest.raises(UnreadableError, match="not a segment of a rank file"):
        reader.read(block.next_seq)
    assert reader.reclaim(block.next_seq) == 1


def test_segment_deleted_after_it_was_listed_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = write_some(tmp_path).reader
    with open_folder(reader.folder) as folder:
        there = list_segments(folder)
    monkeypatch.setattr("telemetry.record.reader.list_segments", lambda folder: ["0.rec", *there])
    assert len(reader.read(0).records) == 10
    assert reader.reclaim(10) == len(there)


@pytest.mark.parametrize(
    ("name", "value"),
    [("rank", None), ("rank", 7), ("local_rank", -1), ("attempt", True), ("pid", 2**32), ("host", 5), ("meta", [1]),
     ("meta", {"model": 1}), ("started_ns", "now"), ("topology", {"dp": 0}), ("topology", {"dp": 1.5}),
     ("host", "half a letter: \ud800"), ("run_id", "\udcff")],
)  # fmt: skip
def test_identity_with_an_invalid_value_raises_a_clear_error(tmp_path: Path, name: str, value: object) -> None:
    reader = write_some(tmp_path).reader
    meta = reader.folder / "meta.json"
    meta.write_text(json.dumps(json.loads(meta.read_text()) | {name: value}))
    with pytest.raises(UnreadableError, match="has no valid identity"):
        reader.identity()


@pytest.mark.parametrize("meta", ["", "{}", "[1]", '{"run_id": 1}'])
def test_damaged_identity_file_raises_a_clear_error(tmp_path: Path, meta: str) -> None:
    reader = write_some(tmp_path).reader
    (reader.folder / "meta.json").write_text(meta)
    with pytest.raises(UnreadableError):
        reader.identity()


def test_restarted_rank_keeps_its_earlier_records(tmp_path: Path) -> None:
    write_some(tmp_path, 10)
    found = write_some(tmp_path, 5)
    assert found.spans["microbatch"].tolist() == [*range(10), *range(5)]


def test_rank_restarted_after_a_kill_keeps_its_earlier_records(tmp_path: Path) -> None:
    life = """
import os, sys, telemetry
telemetry.start("test", spool=sys.argv[1], agent=False)
for number in range(int(sys.argv[2])):
    with telemetry.span("data-load", microbatch=number):
        pass
os.kill(os.getpid(), 9)
"""
    for count in (3, 4):
        assert run_code(life, tmp_path, count).status == -signal.SIGKILL
    assert recorded(tmp_path).spans["microbatch"].tolist() == [0, 1, 2, 0, 1, 2, 3]


def test_rank_starts_and_records_when_a_segment_file_is_garbage(tmp_path: Path) -> None:
    folder = write_some(tmp_path, 10).reader.folder
    (folder / "000007.rec").write_bytes(b"garbage")
    with session(tmp_path) as started, telemetry.span(Stage.OPTIMIZER):
        pass
    assert started.stats().records == 11


def test_two_processes_cannot_record_as_one_rank(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        (folder,) = find_rank_dirs(tmp_path)
        with pytest.raises(UsageError, match="another process"):
            StatePage(folder, measure_anchor())
        writer.kill()
    until(lambda: StatePage(folder, measure_anchor()), what="the lock is let go")


def test_reader_reads_and_reclaims_all_segments_while_a_rank_writes(tmp_path: Path) -> None:
    with session(tmp_path):
        (folder,) = find_rank_dirs(tmp_path)
        reader, seen = RankReader(folder), 0
        for _ in range(60):
            for _ in range(1000):
                with telemetry.span(Stage.DATA_LOAD):
                    pass
            while len((block := reader.read(seen)).records):
                assert (block.first_seq, block.lost) == (seen, 0)
                seen = block.next_seq
            reader.reclaim(seen)
        assert seen == 60_000
        assert len(list(folder.glob("*.rec"))) <= 2  # the one being written, and the next


def test_rank_folders_are_found_by_run_and_attempt(tmp_path: Path) -> None:
    for name in ("b/0/rank-00001", "b/0/rank-00000", "b/1/rank-00000", "a[1]/0/rank-00000", "a[1]/x/rank-00000"):
        (tmp_path / name).mkdir(parents=True)
    names = [str(path.relative_to(tmp_path)) for path in find_rank_dirs(tmp_path)]
    assert names == ["a[1]/0/rank-00000", "b/0/rank-00000", "b/0/rank-00001", "b/1/rank-00000"]
    assert len(find_rank_dirs(tmp_path, "a[1]")) == 1
    assert len(find_rank_dirs(tmp_path, "b", 0)) == 2
    assert find_rank_dirs(tmp_path / "nowhere") == []


def test_hint_names_the_spool_of_a_node_when_the_folder_is_one_of_a_driven_job(tmp_path: Path) -> None:
    of_node = tmp_path / "drive" / "nodes" / "node-0" / "spool"
    of_node.mkdir(parents=True)
    for given in (tmp_path, tmp_path / "spool"):
        assert f"--spool {of_node}" in no_rank_file(given).hint
    assert "default folder" in no_rank_file(of_node).hint
