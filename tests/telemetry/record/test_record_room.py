"""Full rank files, full disks, missing folders: training continues, and lost records are counted."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import telemetry
from telemetry.record.reader import RankReader
from telemetry.record.recorder import Recorder
from telemetry.record.shipping_page import ShippingPage
from telemetry.stages import Stage
from tests.parts import require_root
from tests.scenarios.command import run_code
from tests.telemetry.recording import SMALL, attach, record, recorded, session


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "rank-00000"
    made.mkdir()
    return made


def test_full_rank_file_drops_its_oldest_segments_and_counts_their_records(recorder: Recorder, folder: Path) -> None:
    attach(recorder, folder, max_segments=4)
    record(recorder, 10 * SMALL)
    block = RankReader(folder).read(0)
    assert (block.lost, recorder.dropped()) == (6 * SMALL, 6 * SMALL)
    assert block.records["microbatch"][0] == 6 * SMALL
    assert RankReader(folder).end_seq() == 10 * SMALL


def test_acknowledged_records_are_not_counted_as_dropped(recorder: Recorder, folder: Path) -> None:
    attach(recorder, folder, max_segments=3)
    record(recorder, 3 * SMALL)
    ShippingPage(folder).acknowledge(SMALL + 10)
    record(recorder, 2 * SMALL)
    assert recorder.dropped() == SMALL - 10


def test_no_record_is_dropped_when_shipped_segments_are_reclaimed(recorder: Recorder, folder: Path) -> None:
    attach(recorder, folder, max_segments=3)
    reader = RankReader(folder)
    for _ in range(20):
        record(recorder, SMALL // 2)
        reader.reclaim(reader.end_seq(reader.acked()))
        ShippingPage(folder).acknowledge(reader.end_seq(reader.acked()))
    assert recorder.dropped() == 0


def test_records_are_dropped_and_counted_when_the_rank_folder_is_deleted(recorder: Recorder, folder: Path) -> None:
    attach(recorder, folder)
    record(recorder, SMALL)
    shutil.rmtree(folder)
    record(recorder, 5 * SMALL)
    assert recorder.dropped() == 5 * SMALL


def test_recording_resumes_when_the_rank_folder_exists_again(recorder: Recorder, folder: Path) -> None:
    attach(recorder, folder)
    record(recorder, SMALL)
    shutil.rmtree(folder)
    record(recorder, 1)
    folder.mkdir()
    record(recorder, 300)
    assert len(RankReader(folder).read(SMALL).records) > 0


def test_a_mark_is_never_split_between_segments(recorder: Recorder, folder: Path) -> None:
    attach(recorder, folder)
    record(recorder, SMALL - 3)
    recorder.mark("note", "x" * 400)
    record(recorder, 1)
    first = RankReader(folder).read(0)
    second = RankReader(folder).read(first.next_seq)
    assert (len(first.records), len(second.records)) == (SMALL, 12)
    assert len(first.records[first.records["kind"] == 1]) == SMALL - 3


def test_mark_is_not_read_before_its_text_is_complete(recorder: Recorder, folder: Path) -> None:
    attach(recorder, folder)
    record(recorder, 2)
    recorder.mark("note", "x" * 100)
    segment = folder / "000000.rec"
    whole = segment.read_bytes()
    place = 4096 + 5 * 64
    segment.write_bytes(whole[:place] + bytes(64) + whole[place + 64 :])
    assert len(RankReader(folder).read(0).records) == 2
    segment.write_bytes(whole)
    assert len(RankReader(folder).read(0, max_records=3).records) == 6


def test_file_size_limit_of_the_process_drops_records_without_raising(tmp_path: Path) -> None:
    script = f"""
import resource, telemetry
resource.setrlimit(resource.RLIMIT_FSIZE, (512 * 1024, 512 * 1024))
session = telemetry.start("test", spool={str(tmp_path)!r}, agent=False)
for _ in range(1000):
    with telemetry.span("data-load"):
        pass
print(session.recording, session.stats().dropped)
telemetry.stop()
"""
    assert run_code(script).out.split()[-2:] == ["True", "1000"]


def test_full_disk_drops_and_counts_records_without_raising(tmp_path: Path) -> None:
    require_root("mounts a file system of one segment")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2500k", "tmpfs", str(tmp_path)], check=True, timeout=30)
    try:
        with session(tmp_path) as started:
            for _ in range(60_000):
                with telemetry.span(Stage.DATA_LOAD):
                    pass
        stats, kept = started.stats(), recorded(tmp_path)
        assert 0 < stats.dropped < 60_000
        assert len(kept.spans) + stats.dropped == 60_000
    finally:
        subprocess.run(["umount", "--lazy", str(tmp_path)], check=True, timeout=30)


def test_session_does_not_record_or_raise_when_the_spool_cannot_be_created(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    with session(tmp_path / "file") as started, telemetry.step(0), telemetry.span(Stage.OPTIMIZER):
        telemetry.sample("loss", 1.0)
    assert not started.recording
    assert "not recording" in capsys.readouterr().err


USE_AT_EXIT = """
import atexit, sys
from pathlib import Path
atexit.register(lambda: print(page.acked))
from telemetry.record.shipping_page import ShippingPage
page = ShippingPage(Path(sys.argv[1]))
page.acknowledge(7)
"""


def test_shipping_page_is_usable_in_an_atexit_handler(tmp_path: Path) -> None:
    command = [sys.executable, "-c", USE_AT_EXIT, str(tmp_path)]
    assert subprocess.run(command, capture_output=True, text=True, check=False).stdout == "7\n"
