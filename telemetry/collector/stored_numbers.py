"""Keeps the highest stored record number of each rank, so that a batch that is sent twice is stored once.

Rows of a folder are stored in the order of ``seq``. So one number for each rank and folder describes all that is
stored. The store holds that number (its largest seq). It is cached here, and read again after a failed insert and after
a lost claim. A new folder begins at 0, even if older folders of its rank are stored.

The module also checks how far the record numbers of a rank may jump from one row to the next:

    stored below 1000   next row 1001 ... 1000 + MAX_JUMP    other tables have the numbers between, or texts of marks
                        next row beyond that                 refused, unless a mark `records-lost` fills the gap

    marks:  ... | seq 999 | seq 8999999, records-lost, "8999000 records ..." | seq 9000000 ...

An agent reads one segment of one rank at a time. So without a loss it never skips more numbers than a spool holds.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from telemetry.errors import JumpError
from telemetry.record.rank_file import SEGMENT_RECORDS
from telemetry.records import RECORDS_LOST
from telemetry.run_names import Attempt
from telemetry.settings import MAX_SEGMENTS
from telemetry.stores.interface import Reader
from telemetry.stores.queries import HighWater, NumberedTable
from telemetry.tables import NO_FOLDER, OLDER_FOLDER
from telemetry.wire.codec import Batch, rank_runs

Rank = tuple[str, int, int]
"""Run id, attempt and rank."""

MAX_NAMED_RANKS = 4096
"""If there are more ranks, a query reads all ranks of the attempt."""

_NUMBER = r"^(?P<records>\d{1,12}) "
"""The number at the start of a text. It has few enough digits that the sum over a batch fits 64 bits."""


def records_lost(marks: pa.Table) -> int:
    """The sum over the marks of lost records among ``marks``."""
    return int(lost_in(marks).sum())


def lost_in(marks: pa.Table) -> npt.NDArray[np.uint64]:
    """For each mark, the number of records that it reports as lost, from the start of its text. 0 for other marks."""
    reported = pc.struct_field(pc.extract_regex(marks["text"], _NUMBER), "records").cast(pa.uint64())
    numbers = pc.if_else(pc.equal(marks["name"], RECORDS_LOST), pc.fill_null(reported, 0), 0)
    lost: npt.NDArray[np.uint64] = numbers.cast(pa.uint64()).to_numpy()
    return lost


MAX_JUMP = MAX_SEGMENTS * SEGMENT_RECORDS
"""Records of a rank in a spool of the usual size."""


def far_jumps(
    rows: pa.Table,
    seq: npt.NDArray[np.uint64],
    starts: npt.NDArray[np.intp],
    stored_below: npt.NDArray[np.uint64],
) -> npt.NDArray[np.intp]:
    """The rows that jump too far, except marks of the records that were lost in between. ``starts``: starts of runs of
    equal ranks. ``stored_below``: for each run, one past the last known number before it."""
    before = np.empty_like(seq)
    before[1:] = seq[:-1] + np.uint64(1)
    before[starts] = stored_below
    far = np.flatnonzero((seq > before) & (seq - before > MAX_JUMP))
    if not len(far) or "text" not in rows.column_names:
        return far
    explained = lost_in(rows.take(pa.array(far))) + np.uint64(MAX_JUMP)
    return far[(seq - before)[far] + np.uint64(1) > explained]


def jump_error(batch: Batch, far: npt.NDArray[np.intp], position: Mapping[int, int]) -> JumpError:
    """The error for rows that jump. ``far``: their indices. ``position``: one past each rank's last stored number."""
    ranks = batch.rows["rank"].to_numpy()[far].tolist()
    stored = {rank: position[rank] for rank in ranks}
    rank, seq = ranks[0], batch.rows["seq"][int(far[0])].as_py()
    return JumpError(
        f"run {batch.run_id!r}, attempt {batch.attempt}: the numbers of {batch.table} of rank {rank} jump from record "
        f"{stored[rank]} to {seq}, but a spool holds at most {MAX_JUMP} records",
        hint="number records from 0 in each folder. If records are missing, send a mark records-lost with their number",
        stored=stored,
    )


Folder = tuple[int, int]
"""Rank, and the time at which its folder was first opened."""
Marks = dict[int, dict[int, int]]
"""Rank -> time at which its folder was first opened -> one past the largest stored seq."""


@dataclass(slots=True)
class StoredNumbers:
    """High-water marks by attempt, table, rank and folder. For one thread.

    Raises:
        UnreachableError: from :meth:`trim` and :meth:`with_records`, if the store must be read and does not answer.
    """

    reader: Reader
    _marks: dict[Attempt, dict[str, Marks]] = field(default_factory=dict)

    def trim(self, batch: Batch) -> pa.Table:
        """The rows of ``batch`` that are not stored yet. They count as stored until :meth:`forget`.

        Raises:
            JumpError: the numbers are too far from the stored numbers. Then nothing counts as stored.
        """
        rank_of_row, seq = batch.rows["rank"].to_numpy(), batch.rows["seq"].to_numpy()
        starts, lengths = rank_runs(rank_of_row)
        ranks, rank_of_run = np.unique(rank_of_row[starts], return_inverse=True)
        folders = [(rank, batch.openings.get(rank, NO_FOLDER)) for rank in ranks.tolist()]
        stored_below = self._stored_below(batch.table, batch, folders)
        if len(far_jumps(batch.rows, seq, starts, stored_below[rank_of_run])):
            # Numbers that this table skips are mostly in another table. The other tables are read only in this case.
            position = self._position(batch, folders)
            if len(far := far_jumps(batch.rows, seq, starts, position[rank_of_run])):
                raise jump_error(batch, far, dict(zip(ranks.tolist(), position.tolist(), strict=True)))
        top = stored_below.copy()
        np.maximum.at(top, rank_of_run, seq[starts + lengths - 1] + np.uint64(1))
        for (rank, opened_ns), mark in zip(folders, top.tolist(), strict=True):
            self._marks[batch.run_id, batch.attempt][batch.table][rank][opened_ns] = mark
        marks = stored_below[rank_of_run]
        if bool((seq[starts] >= marks).all()):
            return batch.rows  # runs ascend, so this is the usual case
        return batch.rows.filter(pa.array(seq >= np.repeat(marks, lengths)))

    def with_records(self, batch: Batch, folders: Mapping[int, int]) -> set[int]:
        """The ranks of ``folders`` (rank -> time of first opening) with stored records."""
        if not folders:
            return set()
        position = self._position(batch, list(folders.items()))
        return {rank for rank, below in zip(folders, position.tolist(), strict=True) if below}

    def forget(self, ranks: Iterable[Rank]) -> None:
        """Forget the marks of ``ranks``. They are read again: an insert failed, or another collector stored more."""
        for run_id, attempt, rank in ranks:
            for marks in self._marks.get((run_id, attempt), {}).values():
                marks.pop(rank, None)

    def forget_attempt(self, attempt: Attempt) -> None:
        self._marks.pop(attempt, None)

    def _position(self, batch: Batch, folders: list[Folder]) -> npt.NDArray[np.uint64]:
        """One past the largest seq of each folder that is stored in any table."""
        below = [self._stored_below(table, batch, folders) for table in get_args(NumberedTable)]
        position: npt.NDArray[np.uint64] = np.max(below, axis=0)
        return position

    def _stored_below(self, table: str, batch: Batch, folders: list[Folder]) -> npt.NDArray[np.uint64]:
        """The mark of each of ``folders`` in one table, read from the store if it is not cached."""
        marks = self._marks.setdefault((batch.run_id, batch.attempt), {}).setdefault(table, {})
        if missing := [(rank, opened_ns) for rank, opened_ns in folders if opened_ns not in marks.get(rank, {})]:
            named = tuple(rank for rank, _ in missing) if len(missing) <= MAX_NAMED_RANKS else ()
            query = HighWater(table=table, run_id=batch.run_id, attempt=batch.attempt, ranks=named)  # type: ignore[arg-type]
            rows = self.reader.read(query)
            columns = (rows[name].to_pylist() for name in ("rank", "opened_ns", "next_seq"))
            found = {(rank, opened_ns): next_seq for rank, opened_ns, next_seq in zip(*columns, strict=True)}
            for rank, opened_ns in missing:
                older = found.get((rank, OLDER_FOLDER), 0)
                marks.setdefault(rank, {})[opened_ns] = max(found.get((rank, opened_ns), 0), older)
        return np.array([marks[rank][opened_ns] for rank, opened_ns in folders], np.uint64)
