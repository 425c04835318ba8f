"""Agents that come back: real rank files with the records of an hour, and the agent of the product over them.

SPOOL/host-00007/fleet/0/rank-00056/      meta.json, state, shipping, segments, as a rank writes them
"""

import os
import random
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from telemetry.agent.host import Host
from telemetry.agent.loop import Agent, BackOff, pause_s
from telemetry.agent.settings import AgentSettings
from telemetry.errors import UnreachableError
from telemetry.process.child_process import BORN, birth_of
from telemetry.record import layout
from telemetry.record.clocks.interface import Anchor
from telemetry.record.layout import RecordKind
from telemetry.record.rank_file import RankFile
from telemetry.record.rank_identity import rank_folder, write_identity
from telemetry.record.state_page import StatePage
from telemetry.records import RankIdentity
from telemetry.wire.client import CollectorClient
from tests.benchmarks.fleet.poster import Watched
from tests.benchmarks.fleet.rota import Task
from tests.benchmarks.fleet.traffic import MadeHost, Plan, Shapes, Sums
from tests.benchmarks.made_spans import SPANS_A_STEP

SEGMENT_RECORDS = 1024
"""Smaller than usual: the scaled hour of a rank would not fill one usual segment."""
FIELDS = tuple(name for name in layout.RECORD.names or () if name not in ("kind", "text_length", "commit"))


def write_spool(spool: Path, plan: Plan, number: int, shapes: Shapes, num_steps: int) -> Sums:
    """Write the rank files of one host, whose ranks belong to this process. Returns the sums of their spans."""
    made, sums = MadeHost(plan, number, shapes), Sums()
    spans = made.spans(0, num_steps * SPANS_A_STEP)
    for place, rank in enumerate(made.ranks.values()):
        identity = replace(rank.tail.identity, pid=os.getpid(), meta={"model": "made", BORN: birth_of(os.getpid())})
        rows = spans.slice(place * num_steps * SPANS_A_STEP, num_steps * SPANS_A_STEP)
        seq = pa.array(np.arange(rows.num_rows, dtype=np.uint64))
        sums.add(rows.set_column(rows.column_names.index("seq"), "seq", seq))
        _write_rank(rank_folder(spool, identity.run_id, identity.attempt, identity.rank), identity, rows, num_steps)
    return sums


def _write_rank(folder: Path, identity: RankIdentity, spans: pa.Table, num_steps: int) -> None:
    """The files of a rank that still runs."""
    write_identity(folder, identity)
    now_ns = time.time_ns()
    anchor = Anchor(monotonic_ns=now_ns, wall_ns=now_ns)  # so that the times of records are wall times
    rank_file = RankFile(folder, anchor=anchor, segment_records=SEGMENT_RECORDS, max_segments=1024)
    for first in range(0, spans.num_rows, SEGMENT_RECORDS):
        segment = rank_file.open_segment(first)
        assert segment is not None
        records = _records(spans.slice(first, SEGMENT_RECORDS), segment.offset)
        segment.buffer[segment.offset : segment.offset + records.nbytes] = records.tobytes()
    rank_file.close(spans.num_rows)
    page = StatePage(folder, anchor)
    for word, value in (
        (layout.WORD_STEP, num_steps), (layout.WORD_BEAT, now_ns), (layout.WORD_RECORDED, spans.num_rows),
    ):  # fmt: skip
        page.words[word] = value
    page.close()


def _records(spans: pa.Table, offset: int) -> np.ndarray:
    records = np.zeros(spans.num_rows, layout.RECORD)
    for name in FIELDS:
        records[name] = spans[name].to_numpy()
    records["kind"] = RecordKind.SPAN
    records["text_length"] = spans["clock"].to_numpy()
    records["commit"] = offset + layout.RECORD_BYTES * np.arange(len(records))
    return records


class ReturningAgent:
    """An agent with rank files of which nothing is stored yet. It ends when all is stored."""

    def __init__(self, url: str, spool: Path, sums: Sums, interval_s: float) -> None:
        self._host = Host(spool)
        self.poster = Watched(CollectorClient(url))
        self._interval_s = interval_s
        self._agent = Agent(self._host, self.poster, AgentSettings(spool=spool, collector=url, interval_s=interval_s))
        self._back_off = BackOff()
        self.sums = sums
        """Of all recorded spans."""
        self.stored = False

    def tasks(self) -> Iterator[tuple[float, Task]]:
        """The rounds."""
        yield random.uniform(0, self._interval_s), self._round

    def last_task(self) -> Task:
        """None: it has ended, or is late."""
        return lambda: None

    def _pause_s(self) -> float:
        return pause_s(self._interval_s, self._host.num_hosts, random.Random())

    def _round(self) -> float | None:
        try:
            self._agent.turn()
            self._back_off.succeeded()
        except UnreachableError as error:
            self._back_off.failed(error)
        ranks = self._host.ranks.values()
        self.stored = bool(ranks) and all(_is_shipped(rank.tail.reader.folder) for rank in ranks)
        return None if self.stored else max(self._pause_s(), self._back_off.seconds)


def _is_shipped(folder: Path) -> bool:
    """Whether the agent has deleted all segments, which it does once they are stored."""
    return not any(_segments(folder))


def _segments(folder: Path) -> Iterator[str]:
    return (name for name in os.listdir(folder) if name.endswith(".rec"))
