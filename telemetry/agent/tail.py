"""From a rank's records to rows: follows one rank file and returns the columns of ``telemetry.tables``.

    read:     pin the segment  ->  records, and the gap before them if the rank had to free space  ->  Chunk
    shipped:  acknowledge      ->  sealed segments below are deleted

Missing records are reported by a mark in the rank's own stream. The mark has the number of the last missing record, so
it is stored once, like any record. What is stored is what was recorded, minus what such marks count.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from telemetry.errors import UnreadableError
from telemetry.record.layout import RecordKind
from telemetry.record.reader import MAX_RECORDS, RankReader, RecordBlock
from telemetry.record.segments import decode_marks, decode_samples, decode_spans
from telemetry.record.shipping_page import LossCause, ShippingPage
from telemetry.record.state_page import LiveState
from telemetry.records import MAX_AHEAD_NS, RECORDS_LOST, RankIdentity
from telemetry.tables import MARKS, RANKS, TABLES

CAUSE_TEXTS = {
    LossCause.CAP: "rank files reached their size limit before the collector stored these records",
    LossCause.DISK_FULL: "the disk was full before the collector stored these records",
}
MAX_NS = 2**63 - 1
UNREADABLE_TEXT = "their file was damaged or deleted"
NOT_STORED_TEXT = "they were acknowledged, but the collector's store does not have them"
_DECODERS = {"spans": decode_spans, "marks": decode_marks, "samples": decode_samples}


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Rows of consecutive records of one rank. ``next_seq``: one past the last record."""

    num_records: int
    next_seq: int
    tables: dict[str, pa.Table]
    """Rows by table, without empty tables."""
    last_ns: int = 0
    """Wall clock of the last record."""


class RankTail:
    """Follows one rank file. Records count as shipped after :meth:`shipped`. With ``from_seq``, nothing is written into
    the folder.

    Raises:
        UnreadableError: from every method, if the folder does not contain valid files of a rank.
        OSError: likewise, if a file was deleted in between.
    """

    def __init__(self, folder: Path, *, from_seq: int | None = None) -> None:
        self.reader = RankReader(folder)
        self._written = _identity_of(self.reader)
        self._next_seq = self.reader.acked() if from_seq is None else from_seq
        self._page = self._open_page() if from_seq is None else None
        self.identity = _corrected(self._written, self._page)
        self._stored_below: int | None = None
        """One past the last stored number, as the collector reports it when it refuses a jump of the numbers."""

    def read(self, max_records: int = MAX_RECORDS) -> Chunk | None:
        """The next committed records, about ``max_records`` at most; None if there are none yet."""
        block = self._pinned_block(max_records)
        if not len(block.records):
            return None
        tables = {name: _table(name, block, self.identity.rank) for name in _DECODERS}
        rows = {name: table for name, table in tables.items() if table.num_rows}
        lost = block.lost if self._stored_below is None else max(block.lost, block.first_seq - self._stored_below)
        if lost and self._page is not None:
            hole = _loss_row(block, self.identity.rank, self._page, lost)
            rows["marks"] = pa.concat_tables([hole, rows["marks"]]) if "marks" in rows else hole
        last_ns = _stamps(block)[-1]
        return Chunk(num_records=len(block.records), next_seq=block.next_seq, tables=rows, last_ns=last_ns)

    def passed(self, chunk: Chunk) -> None:
        """Continue after ``chunk`` in the next read."""
        self._next_seq = chunk.next_seq

    def shipped(self, chunk: Chunk) -> None:
        """Note that ``chunk`` is stored. Continues after it, and deletes segments that are no longer needed."""
        self.passed(chunk)
        self._stored_below = None
        with suppress(OSError):
            if self._page is not None:
                self._page.acknowledge(max(chunk.next_seq, self._page.acked), chunk.last_ns)
                self.reader.reclaim(chunk.next_seq)

    def report_hole(self, stored_below: int) -> bool:
        """Report records as lost that the collector acknowledged but does not have: its store was replaced or restored.
        The next chunk has a mark of them. Returns False if the last chunk already had it."""
        is_news = self._stored_below is None
        self._stored_below = stored_below
        return is_news

    def refresh_identity(self, check: Callable[[RankIdentity], None]) -> None:
        """Read the identity again: after a restart in place another process writes. A folder that was deleted and
        created again is read from its beginning. Where ``check`` raises, the identity stays as it was."""
        now = _identity_of(self.reader)
        check(now)
        before, self._written = self._written, now
        if now.folder_opened_ns != before.folder_opened_ns:
            self._next_seq, self._stored_below = self.reader.acked(), None
            self._page = self._open_page()
        self.identity = _corrected(now, self._page)

    def correct_clock(self, now_ns: int) -> None:
        """Correct an identity that was written while the clock of the host was far ahead: a collector refuses it. The
        time of opening names the folder in the store, so it is corrected once, before any record is sent."""
        limit_ns = now_ns + MAX_AHEAD_NS
        if self._page is not None and self.identity.folder_opened_ns > limit_ns and not self._page.sending:
            self._page.correct_opening(now_ns)
            self.identity = _corrected(self._written, self._page)
        if self.identity.started_ns > limit_ns:
            opened_ns = self.identity.folder_opened_ns
            self.identity = replace(self.identity, started_ns=now_ns, opened_ns=opened_ns)

    def is_rewritten(self, state: LiveState) -> bool:
        """Whether the identity changed since it was read: another process writes, or the rank has learned its mesh."""
        return state.pid != self._written.pid or state.identity_ns > self._written.started_ns

    def _open_page(self) -> ShippingPage | None:
        """The shipping page; None if the folder is not writable. Without it, each agent sends all records again, and
        the collector drops those that it has."""
        try:
            return ShippingPage(self.reader.folder)
        except OSError:
            return None

    def _pinned_block(self, max_records: int) -> RecordBlock:
        """The next records. Their segment is pinned, so the rank does not delete it any more."""
        if self._page is None:
            return self.reader.read(self._next_seq, max_records)
        self._next_seq = max(self._next_seq, self._page.acked)
        sent, sure = self._page.sending, 0
        while True:
            self._page.pin(max(sent, self.reader.first_end(self._next_seq)))
            block = self.reader.read(self._next_seq, max_records)
            if not len(block.records):
                self._page.pin(sent)
                return block
            if block.lost in (0, sure):
                self._page.pin(max(sent, block.next_seq))
                return block
            # The rank may be deleting the segment at this moment, and then puts it back because of the pin. So a hole
            # counts only if it is still there with a new pin, and no segment is being deleted.
            sure = 0 if self.reader.take_back() else block.lost


def _corrected(written: RankIdentity, page: ShippingPage | None) -> RankIdentity:
    return replace(written, opened_ns=page.opened_ns) if page is not None and page.opened_ns else written


def _stamps(block: RecordBlock) -> tuple[int, int]:
    """Wall clock of the first and the last record with a time; 0 without such a record."""
    times = block.records["start_ns"][block.records["kind"] != RecordKind.TEXT]
    if not len(times):
        return 0, 0
    first, last = (min(max(block.anchor.to_wall_ns(int(at_ns)), 0), MAX_NS) for at_ns in (times[0], times.max()))
    return first, last


def _loss_row(block: RecordBlock, rank: int, page: ShippingPage, lost: int) -> pa.Table:
    """The mark of the ``lost`` records that are missing in front of ``block``."""
    causes = page.causes(block.first_seq - block.lost) if block.lost else []
    resumed_ns, _ = _stamps(block)
    at_ns = min(page.acked_ns or resumed_ns, resumed_ns)
    causes_text = [CAUSE_TEXTS[cause] for cause in causes] or [UNREADABLE_TEXT] * bool(block.lost)
    why = "; ".join([*causes_text, *[NOT_STORED_TEXT] * (lost > block.lost)])
    row = {
        "rank": rank,
        "seq": block.first_seq - 1,
        "step": int(block.records["step"][0]),
        "at_ns": at_ns,
        "name": RECORDS_LOST,
        "text": f"{lost} records of {(resumed_ns - at_ns) / 1e9:.1f} s: {why}",
    }
    return pa.Table.from_pylist([row], schema=MARKS)


def _identity_of(reader: RankReader) -> RankIdentity:
    """The identity in a folder. The name of the folder must agree, so that two folders are never the same rank."""
    identity = reader.identity()
    attempt, rank = str(identity.attempt), f"rank-{identity.rank:05d}"
    if reader.folder.parts[-3:] != (identity.run_id, attempt, rank):
        raise UnreadableError(
            f"the files in {reader.folder} belong to {identity.run_id}/{attempt}/{rank}",
            hint="rename the folder to its original name",
        )
    return identity


def rank_rows(identities: list[RankIdentity]) -> pa.Table:
    """Rows of the ``ranks`` table."""
    rows = [
        {
            "rank": identity.rank,
            "host": identity.host,
            "local_rank": identity.local_rank,
            "pid": identity.pid,
            "dp_size": identity.topology.dp,
            "pp_size": identity.topology.pp,
            "tp_size": identity.topology.tp,
            "mesh": str(identity.topology),
            "started_ns": identity.started_ns,
            "opened_ns": identity.folder_opened_ns,
            "meta": json.dumps(identity.meta, sort_keys=True),
        }
        for identity in identities
    ]
    return pa.Table.from_pylist(rows, schema=RANKS)


def _table(name: str, block: RecordBlock, rank: int) -> pa.Table:
    columns = _DECODERS[name](block.records, block.first_seq, block.anchor.to_wall_ns)
    columns["rank"] = np.full(len(columns["seq"]), rank, np.uint32)
    if "size_bytes" in columns:
        # Signed in the file: an invalid negative size must not become a huge one.
        columns["size_bytes"] = np.maximum(columns["size_bytes"], 0).astype(np.uint64)
    arrays = []
    for field in TABLES[name]:
        values = columns[field.name]
        contiguous = np.ascontiguousarray(values) if isinstance(values, np.ndarray) else values
        arrays.append(pa.array(contiguous, field.type))
    return pa.Table.from_arrays(arrays, schema=TABLES[name])
