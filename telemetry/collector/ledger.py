"""Who is stored up to where: what makes a resent batch harmless.

Rows of a folder are stored in the order of ``seq``, so one number a rank and folder says all that is stored. The store
itself holds that number (its largest seq); here it is kept at hand, and read again after anything that may have made it
wrong. A fresh folder begins at 0, whatever is stored under the name of its rank.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from telemetry.collector.claims import MAX_NAMED_RANKS, Attempt, Rank
from telemetry.collector.sequence import far_jumps, jump_error
from telemetry.stores.queries import HighWater, NumberedTable
from telemetry.stores.reader import Reader
from telemetry.tables import NO_FOLDER, OLDER_FOLDER
from telemetry.wire.codec import Batch, rank_runs

Folder = tuple[int, int]
"""Rank, when its folder was first opened."""
Marks = dict[int, dict[int, int]]
"""Rank -> when its folder was first opened -> one past the largest seq that is stored."""


@dataclass(slots=True)
class Ledger:
    """High-water marks by attempt, table, rank and folder. Not for several threads.

    Raises:
        UnreachableError: from :meth:`trim` and :meth:`with_records`, when the store must be read and does not answer.
    """

    reader: Reader
    _marks: dict[Attempt, dict[str, Marks]] = field(default_factory=dict)

    def trim(self, batch: Batch) -> pa.Table:
        """The rows of ``batch`` that are not stored yet. They count as stored from now on: see :meth:`forget`.

        Raises:
            JumpError: their numbers are too far from those that are stored. Nothing counts as stored.
        """
        rank_of_row, seq = batch.rows["rank"].to_numpy(), batch.rows["seq"].to_numpy()
        starts, lengths = rank_runs(rank_of_row)
        ranks, rank_of_run = np.unique(rank_of_row[starts], return_inverse=True)
        folders = [(rank, batch.openings.get(rank, NO_FOLDER)) for rank in ranks.tolist()]
        stored_below = self._stored_below(batch.table, batch, folders)
        self._check_jumps(batch, seq, starts, stored_below[rank_of_run], folders)
        top = stored_below.copy()
        np.maximum.at(top, rank_of_run, seq[starts + lengths - 1] + np.uint64(1))
        for (rank, opened_ns), mark in zip(folders, top.tolist(), strict=True):
            self._marks[batch.run_id, batch.attempt][batch.table][rank][opened_ns] = mark
        return _at_least(batch.rows, seq, starts, lengths, stored_below[rank_of_run])

    def with_records(self, batch: Batch, folders: Mapping[int, int]) -> set[int]:
        """Those ranks of ``folders`` (rank -> when it was first opened) of which records are stored."""
        if not folders:
            return set()
        position = self._position(batch, list(folders.items()))
        return {rank for rank, below in zip(folders, position.tolist(), strict=True) if below}

    def forget(self, ranks: Iterable[Rank]) -> None:
        """What is stored of them must be read again: an insert failed, or another may have stored more."""
        for run_id, attempt, rank in ranks:
            for marks in self._marks.get((run_id, attempt), {}).values():
                marks.pop(rank, None)

    def forget_attempt(self, attempt: Attempt) -> None:
        self._marks.pop(attempt, None)

    def _check_jumps(
        self,
        batch: Batch,
        seq: npt.NDArray[np.uint64],
        starts: npt.NDArray[np.intp],
        stored_below: npt.NDArray[np.uint64],
        folders: list[Folder],
    ) -> None:
        """Numbers that this table skips are mostly in another one: the others are read only for a far jump."""
        if not len(far_jumps(batch.rows, seq, starts, stored_below)):
            return
        position = dict(zip([rank for rank, _ in folders], self._position(batch, folders).tolist(), strict=True))
        of_run = batch.rows["rank"].to_numpy()[starts].tolist()
        below = np.maximum(stored_below, np.array([position[rank] for rank in of_run], np.uint64))
        if len(far := far_jumps(batch.rows, seq, starts, below)):
            raise jump_error(batch, far, position)

    def _position(self, batch: Batch, folders: list[Folder]) -> npt.NDArray[np.uint64]:
        """One past the largest seq of each folder that is stored in any table."""
        below = [self._stored_below(table, batch, folders) for table in get_args(NumberedTable)]
        position: npt.NDArray[np.uint64] = np.max(below, axis=0)
        return position

    def _stored_below(self, table: str, batch: Batch, folders: list[Folder]) -> npt.NDArray[np.uint64]:
        """The mark of each of ``folders`` in one table; read from the store where it is not at hand."""
        marks = self._marks.setdefault((batch.run_id, batch.attempt), {}).setdefault(table, {})
        if missing := [(rank, opened_ns) for rank, opened_ns in folders if opened_ns not in marks.get(rank, {})]:
            found = self._read(table, batch, [rank for rank, _ in missing])
            for rank, opened_ns in missing:
                older = found.get((rank, OLDER_FOLDER), 0)
                marks.setdefault(rank, {})[opened_ns] = max(found.get((rank, opened_ns), 0), older)
        return np.array([marks[rank][opened_ns] for rank, opened_ns in folders], np.uint64)

    def _read(self, table: str, batch: Batch, ranks: list[int]) -> dict[Folder, int]:
        named = tuple(ranks) if len(ranks) <= MAX_NAMED_RANKS else ()
        query = HighWater(table=table, run_id=batch.run_id, attempt=batch.attempt, ranks=named)  # type: ignore[arg-type]
        rows = self.reader.read(query)
        columns = (rows[name].to_pylist() for name in ("rank", "opened_ns", "next_seq"))
        return {(rank, opened_ns): next_seq for rank, opened_ns, next_seq in zip(*columns, strict=True)}


def _at_least(
    rows: pa.Table,
    seq: npt.NDArray[np.uint64],
    starts: npt.NDArray[np.intp],
    lengths: npt.NDArray[np.intp],
    marks: npt.NDArray[np.uint64],
) -> pa.Table:
    """The rows whose ``seq`` is not below the mark of their run. Runs ascend, so most of the time all are."""
    if bool((seq[starts] >= marks).all()):
        return rows
    return rows.filter(pa.array(seq >= np.repeat(marks, lengths)))
