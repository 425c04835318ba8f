"""The roles of the processes of a world. Each role is a function that a forked child runs."""

import gc
import os
import shutil
import signal
import threading
from functools import partial
from pathlib import Path

import pyarrow.feather

import telemetry
import telemetry.record.recording
from telemetry.agent.settings import follow
from telemetry.collector.server import run_collector
from telemetry.collector.settings import CollectorSettings
from telemetry.record.layout import text_pieces
from telemetry.record.rank_file import RankFile, Segment
from telemetry.stores.open import open_store
from telemetry.topology import Topology
from tests.integration.chaos.wall_clock import follow as follow_clock

SEGMENT_RECORDS = 1024
SPANS_PER_STEP = 20
STEPS_PER_MARK = 16
PAUSE_S = 0.005
LINGER_S = 0.01
"""A short wait, because segments are small here and each segment is a batch."""


class WitnessedRankFile(RankFile):
    """A rank file that copies its segments when they are sealed, so that the recorded records are known."""

    def __init__(self, folder: Path, *, kept: Path, **options: object) -> None:
        super().__init__(folder, segment_records=SEGMENT_RECORDS, **options)  # type: ignore[arg-type]
        self._kept = kept

    def seal_and_go_on_in(self, segment: Segment) -> None:
        self._copy()
        super().seal_and_go_on_in(segment)

    def close(self, next_seq: int) -> None:
        self._copy()
        super().close(next_seq)

    def _copy(self) -> None:
        if self._current is not None and (segment := self.folder / self._current.name).exists():
            shutil.copyfile(segment, self._kept / segment.name)


def rank(clock: Path, run_id: str, number: int, num_ranks: int, spool: Path, kept: Path, max_segments: int) -> None:
    """Record until SIGTERM. Then write the number of records of all calls since the start."""
    follow_clock(clock)
    told: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: told.append(number))
    gc.disable()  # a garbage collection would also be recorded
    os.environ["RANKSCOPE_SEGMENTS"] = str(max_segments)
    telemetry.record.recording.RankFile = partial(WitnessedRankFile, kept=kept)  # type: ignore[misc,assignment]
    session = telemetry.start(
        run_id,
        topology=Topology(dp=num_ranks),
        rank=number,
        local_rank=number,
        host="host",
        attempt=0,
        spool=spool,
        agent=False,
    )
    assert session.recording
    num_records = _record(number, told)
    telemetry.stop()
    (kept / "calls").write_text(str(num_records))


def _record(number: int, told: list[int]) -> int:
    step = num_records = 0
    pause = threading.Event()
    while not told:
        pause.wait(PAUSE_S)
        with telemetry.step(step):
            for microbatch in range(SPANS_PER_STEP):
                with telemetry.span("forward-compute", microbatch=microbatch):
                    pass
        telemetry.sample("loss", 1.0 / (step + 1))
        if step % STEPS_PER_MARK == 0:
            text = f"step {step} of rank {number} " * 4
            telemetry.mark("note", text)
            num_records += 1 + len(text_pieces(text))
        num_records += SPANS_PER_STEP + 2
        step += 1
    return num_records


def agent(clock: Path, spool: Path, port: int) -> None:
    """Run an agent, which ends by itself when every rank has ended and is stored."""
    follow_clock(clock)
    arguments = ["--spool", str(spool), "--collector", f"http://127.0.0.1:{port}", "--interval", "0.1"]
    follow("agent", [*arguments, "--patience", "20", "--sample", "0", "--network", "0"])


def collector(clock: Path, store: str, port: int) -> None:
    follow_clock(clock)
    run_collector(CollectorSettings.checked(store=store, port=port, linger_s=LINGER_S))


STORED = {
    "spans": "SELECT rank, seq, start_ns, duration_ns FROM spans WHERE run_id = %(run_id)s ORDER BY rank, seq",
    "samples": "SELECT rank, seq, at_ns, value FROM samples WHERE run_id = %(run_id)s ORDER BY rank, seq",
    "marks": "SELECT rank, seq, at_ns, name, text FROM marks WHERE run_id = %(run_id)s ORDER BY rank, seq",
}


def dump(store: str, run_id: str, folder: Path) -> None:
    """Write every row of a run in the store to files."""
    opened = open_store(store)
    for table, sql in STORED.items():
        rows = opened.query(sql, {"run_id": run_id})
        pyarrow.feather.write_feather(rows, str(folder / f"{table}.feather"), compression="uncompressed")
    opened.close()
