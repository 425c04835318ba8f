"""Who is stored up to where: what makes a resent batch harmless.

Rows of a rank are stored in the order of ``seq``, so one number a rank says all that is stored. The store itself
holds that number (its largest seq); here it is kept at hand, and read again after anything that may have made it wrong.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from telemetry.ship.claims import MAX_NAMED_RANKS, Attempt, Rank
from telemetry.ship.wire import Batch, rank_runs
from telemetry.stores.queries import HighWater
from telemetry.stores.reader import Reader

Marks = dict[int, int]
"""Rank -> one past the largest seq that is stored."""


@dataclass(slots=True)
class Ledger:
    """High-water marks by attempt, table and rank. Not for several threads.

    Raises:
        UnreachableError: from :meth:`trim`, when a mark must be read and the store does not answer.
    """

    reader: Reader
    _marks: dict[Attempt, dict[str, Marks]] = field(default_factory=dict)

    def trim(self, batch: Batch) -> pa.Table:
        """The rows of ``batch`` that are not stored yet. They count as stored from now on: see :meth:`forget`."""
        rank, seq = batch.rows["rank"].to_numpy(), batch.rows["seq"].to_numpy()
        starts, lengths = rank_runs(rank)
        ranks, rank_of_run = np.unique(rank[starts], return_inverse=True)
        marks = self._of(batch, ranks.tolist())
        stored_below = np.array([marks[one] for one in ranks.tolist()], np.uint64)
        top = stored_below.copy()
        np.maximum.at(top, rank_of_run, seq[starts + lengths - 1] + np.uint64(1))
        marks.update(zip(ranks.tolist(), top.tolist(), strict=True))
        return _at_least(batch.rows, seq, starts, lengths, stored_below[rank_of_run])

    def forget(self, ranks: Iterable[Rank]) -> None:
        """What is stored of them must be read again: an insert failed, or another may have stored more."""
        for run_id, attempt, rank in ranks:
            for marks in self._marks.get((run_id, attempt), {}).values():
                marks.pop(rank, None)

    def forget_attempt(self, attempt: Attempt) -> None:
        self._marks.pop(attempt, None)

    def _of(self, batch: Batch, ranks: list[int]) -> Marks:
        """The marks of an attempt, those of ``ranks`` among them."""
        marks = self._marks.setdefault((batch.run_id, batch.attempt), {}).setdefault(batch.table, {})
        if missing := [rank for rank in ranks if rank not in marks]:
            stored = self.reader.read(_high_water(batch, missing))
            found = dict(zip(stored["rank"].to_pylist(), stored["next_seq"].to_pylist(), strict=True))
            marks.update((rank, found.get(rank, 0)) for rank in missing)
        return marks


def _high_water(batch: Batch, ranks: list[int]) -> HighWater:
    named = tuple(ranks) if len(ranks) <= MAX_NAMED_RANKS else ()
    return HighWater(table=batch.table, run_id=batch.run_id, attempt=batch.attempt, ranks=named)  # type: ignore[arg-type]


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
