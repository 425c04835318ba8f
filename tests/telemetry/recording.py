"""Recording in tests: a session in its own folder, and the records that it wrote."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import telemetry
from telemetry.record.layout import RecordKind
from telemetry.record.rank_file import RankFile
from telemetry.record.reader import RankReader, find_rank_dirs
from telemetry.record.record_buffer import scrap_words
from telemetry.record.recorder import Recorder
from telemetry.record.segments import decode_marks, decode_samples
from telemetry.stages import SpanClock, Stage
from telemetry.topology import Topology

SMALL = 16
"""Number of records in a segment of :func:`attach`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """All committed records of one rank."""

    records: NDArray[np.void]
    reader: RankReader

    @property
    def spans(self) -> NDArray[np.void]:
        """All spans except those of garbage collections, which the interpreter starts at any time."""
        return self._every_span[self._every_span["stage"] != Stage.GC]

    @property
    def num_collections(self) -> int:
        """Number of spans of garbage collections."""
        return int((self._every_span["stage"] == Stage.GC).sum())

    @property
    def _every_span(self) -> NDArray[np.void]:
        return self.records[self.records["kind"] == RecordKind.SPAN]

    @property
    def stages(self) -> list[str]:
        """Labels of the spans, in order of their ends."""
        return [Stage(int(code)).label for code in self.spans["stage"]]  # type: ignore[call-arg]

    @property
    def clocks(self) -> list[SpanClock]:
        """The clocks that measured the spans."""
        return [SpanClock(code) for code in self.spans["text_length"]]

    @property
    def marks(self) -> list[tuple[str, str]]:
        columns = decode_marks(self.records, 0, _as_is)
        return list(zip(columns["name"], columns["text"], strict=True))

    @property
    def samples(self) -> list[tuple[str, float]]:
        columns = decode_samples(self.records, 0, _as_is)
        return list(zip(columns["metric"], columns["value"].tolist(), strict=True))


def _as_is(at_ns: Any) -> Any:
    return at_ns


@contextmanager
def session(spool: Path, **options: Any) -> Iterator[telemetry.Session]:
    """A session that records during the block. Automatic garbage collection is off, because its spans take
    records."""
    gc.disable()
    started = telemetry.start("test", spool=spool, topology=Topology(), rank=0, agent=False, **options)
    try:
        yield started
    finally:
        telemetry.stop()
        gc.enable()


def recorded(spool: Path, rank: int = 0) -> Recorded:
    """The committed records of rank ``rank`` of the only run in ``spool``."""
    (folder,) = [path for path in find_rank_dirs(spool) if path.name == f"rank-{rank:05d}"]
    reader = RankReader(folder)
    blocks = [reader.read(reader.acked())]
    while len(blocks[-1].records):
        blocks.append(reader.read(blocks[-1].next_seq))
    return Recorded(records=np.concatenate([block.records for block in blocks]), reader=reader)


def attach(recorder: Recorder, folder: Path, *, max_segments: int = 4) -> RankFile:
    """A rank file with few and small segments. ``recorder`` writes to it from now on."""
    sink = RankFile(folder, segment_records=SMALL, max_segments=max_segments)
    recorder.attach(sink, sink.next_seq, scrap_words(), None)
    return sink


def record(recorder: Recorder, count: int) -> None:
    """Record ``count`` spans, numbered by their microbatch."""
    for number in range(count):
        with recorder.span(Stage.DATA_LOAD, microbatch=number):
            pass
