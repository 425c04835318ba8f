"""Checks that every recorded record is stored once, except exactly the records that are reported as lost.

The recorded records are read from copies of the segments. No part of the world changes these copies.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.feather
from numpy.typing import NDArray

from telemetry.agent.tail import CAUSE_TEXTS
from telemetry.files.private_files import Folder, open_folder
from telemetry.record.clocks.interface import Anchor
from telemetry.record.layout import RecordKind
from telemetry.record.reader import RecordBlock
from telemetry.record.segments import (
    decode_marks,
    decode_samples,
    decode_spans,
    list_segments,
    read_header,
    read_records,
)
from telemetry.records import RECORDS_LOST

CAUSES = tuple(CAUSE_TEXTS.values())


@dataclass(slots=True, kw_only=True)
class Account:
    """Result of a trial."""

    recorded: int = 0
    """Numbered records of all ranks."""
    lost_of: dict[str, int] = field(default_factory=dict)
    """Records of these that marks in the store report as lost, by rank."""
    stored: int = 0
    """Number of rows of spans, samples and marks."""
    unnumbered: int = 0
    """Records that were dropped without a number, counted by the ranks."""
    checksum: str = ""
    """Checksum of rank, seq, start_ns and duration_ns of the stored spans."""
    faults: list[str] = field(default_factory=list)
    """Differences that were found. Empty if there are none."""

    @property
    def lost(self) -> int:
        """Number of recorded records that were lost."""
        return sum(self.lost_of.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRecord:
    """The records of one rank over all its starts, by number."""

    num_records: int
    num_padding: int
    spans: NDArray[np.int64]
    """Rows of seq, start_ns, duration_ns."""
    samples: NDArray[np.int64]
    """Rows of seq, at_ns, bits of the value."""
    marks: dict[int, tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Records that the store reports as lost: from ``first_seq`` to before ``end_seq``."""

    first_seq: int
    end_seq: int
    why: str


def read_recorded(kept: Path) -> RankRecord:
    """The records in the copied segments of one rank.

    Raises:
        AssertionError: the record numbers have a gap, so a copy is missing.
    """
    with open_folder(kept) as folder:
        blocks = [block for name in list_segments(folder) if len((block := _block(folder, name)).records)]
    next_seq = 0
    for block in blocks:
        assert block.first_seq == next_seq, f"{kept}: no copy of records {next_seq} to {block.first_seq}"
        next_seq = block.next_seq
    spans, samples, marks = _columns(blocks, decode_spans), _columns(blocks, decode_samples), {}
    for block in blocks:
        found = decode_marks(block.records, block.first_seq, block.anchor.to_wall_ns)
        marks |= dict(zip(found["seq"].tolist(), zip(found["name"], found["text"], strict=True), strict=True))
    return RankRecord(
        num_records=next_seq,
        num_padding=sum(_num_padding(block) for block in blocks),
        spans=_rows(spans, "seq", "start_ns", "duration_ns"),
        samples=_rows(samples, "seq", "at_ns", "value"),
        marks=marks,
    )


def _block(folder: Folder, name: str) -> RecordBlock:
    """All records of a segment. It may be unsealed if the rank was killed."""
    header = read_header(folder, name)
    return RecordBlock(
        first_seq=header.first_seq,
        records=read_records(folder, name, header, from_seq=header.first_seq, max_records=header.capacity),
        anchor=Anchor(monotonic_ns=header.anchor_monotonic_ns, wall_ns=header.anchor_wall_ns),
        lost=0,
    )


def _num_padding(block: RecordBlock) -> int:
    texts = block.records["kind"] == RecordKind.TEXT
    return int(np.count_nonzero(texts & (block.records["text_length"] == 0)))


def _columns(blocks: list[RecordBlock], decode: Any) -> list[dict[str, Any]]:
    return [decode(block.records, block.first_seq, block.anchor.to_wall_ns) for block in blocks]


def _rows(columns: list[dict[str, Any]], *names: str) -> NDArray[np.int64]:
    parts = [np.stack([_bits(one[name]) for name in names], axis=1) for one in columns]
    return np.concatenate(parts) if parts else np.zeros((0, len(names)), np.int64)


def _bits(column: Any) -> NDArray[np.int64]:
    values = np.ascontiguousarray(column)
    return values.view(np.int64) if values.dtype.itemsize == 8 else values.astype(np.int64)


def hold_rows(account: Account, kept: Sequence[Path], dumped: Path) -> None:
    """Compare the copies in ``kept`` (by rank) with the rows that were dumped into a folder."""
    tables = {name: pyarrow.feather.read_table(dumped / f"{name}.feather") for name in ("spans", "samples", "marks")}
    account.checksum = _checksum(tables["spans"])
    account.stored = sum(rows.num_rows for rows in tables.values())
    for number, folder in enumerate(kept):
        _hold(account, f"rank-{number}", read_recorded(folder), {name: _of(t, number) for name, t in tables.items()})


def hold_counters(account: Account, who: str, kept: Path, *, dropped: int, called: int | None) -> None:
    """Compare a rank's count of dropped records, over all its starts, with the number of records of its calls.

    ``called`` is None if that number is unknown, because the rank was killed. Call this after :func:`hold_rows`.
    """
    lost = account.lost_of[who]
    unnumbered = dropped - lost
    if called is None:
        # A kill can lose counts since the last step. No drop is counted twice.
        account.unnumbered += max(0, unnumbered)
        return
    account.unnumbered += unnumbered
    recorded = read_recorded(kept)
    numbered = recorded.num_records - recorded.num_padding
    # Dropped records are counted with their padding, because a mark never crosses the end of a segment.
    if unnumbered < 0 or numbered + unnumbered < called or (not unnumbered and numbered != called):
        account.faults.append(f"{who}: {called} calls, {numbered} numbered, {dropped} dropped, {lost} lost")


def _hold(account: Account, who: str, recorded: RankRecord, stored: dict[str, pa.Table]) -> None:
    losses = [_loss(row) for row in stored["marks"].to_pylist() if row["name"] == RECORDS_LOST]
    account.recorded += recorded.num_records
    account.lost_of[who] = sum(loss.end_seq - loss.first_seq for loss in losses)
    account.stored -= len(losses)
    account.faults += [f"{who}: unexplained: {loss}" for loss in losses if loss.why not in CAUSES]
    marks = {row["seq"]: (row["name"], row["text"]) for row in stored["marks"].to_pylist()}
    if len(marks) != stored["marks"].num_rows:
        account.faults.append(f"{who}: marks stored twice")
    for name, expected, columns in (
        ("spans", recorded.spans, ("seq", "start_ns", "duration_ns")),
        ("samples", recorded.samples, ("seq", "at_ns", "value")),
    ):
        found = _rows([{column: stored[name][column].to_numpy() for column in columns}], *columns)
        account.faults += _differences(f"{who}: {name}", _kept(expected, losses), found)
    left = {seq: mark for seq, mark in recorded.marks.items() if not _is_lost(seq, losses)}
    told = {seq: mark for seq, mark in marks.items() if mark[0] != RECORDS_LOST}
    if told != left:
        account.faults.append(f"{who}: marks differ at {sorted(set(told) ^ set(left))[:5]}")


def _differences(what: str, expected: NDArray[np.int64], found: NDArray[np.int64]) -> list[str]:
    if np.array_equal(expected, found):
        return []
    wanted, seen = set(expected[:, 0].tolist()), set(found[:, 0].tolist())
    missing, foreign = sorted(wanted - seen), sorted(seen - wanted)
    doubled = len(found) - len(seen)
    words = f"{len(missing)} missing {_span(missing)}, {len(foreign)} though lost {_span(foreign)}, {doubled} doubled"
    return [f"{what}: {words}, of {len(expected)}"]


def _span(numbers: list[int]) -> str:
    return f"({numbers[0]} to {numbers[-1]})" if numbers else ""


def _kept(rows: NDArray[np.int64], losses: list[Loss]) -> NDArray[np.int64]:
    lost = np.zeros(len(rows), bool)
    for loss in losses:
        lost |= (rows[:, 0] >= loss.first_seq) & (rows[:, 0] < loss.end_seq)
    return rows[~lost]


def _is_lost(seq: int, losses: list[Loss]) -> bool:
    return any(loss.first_seq <= seq < loss.end_seq for loss in losses)


def _loss(row: dict[str, Any]) -> Loss:
    match = re.fullmatch(r"(\d+) records .*?: (.*)", row["text"])
    assert match, row
    end_seq = row["seq"] + 1
    return Loss(first_seq=end_seq - int(match[1]), end_seq=end_seq, why=match[2].partition(";")[0])


def _of(rows: pa.Table, rank: int) -> pa.Table:
    return rows.filter(pc.equal(rows["rank"], rank))


def _checksum(spans: pa.Table) -> str:
    digest = hashlib.sha256()
    for name in ("rank", "seq", "start_ns", "duration_ns"):
        digest.update(np.ascontiguousarray(spans[name].to_numpy()).astype(np.int64).tobytes())
    return digest.hexdigest()[:12]
