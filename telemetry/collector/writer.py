"""Writes a group of batches of one table to the store, each row with a ``seq`` exactly once.

    claim the ranks (claims.py) --> check their folder (claims.py) --> drop rows that are stored (stored_numbers.py)
                                --> one insert, checked once it is registered
                                                                              |
    nothing of these ranks is stored: "send it again"  <--- another collector has claimed them

The cached state of a rank is dropped together: its claim, its folder, and its highest stored number.

Rows of many batches are sorted into one block, in the order of the store:

    host a   rank 0: step 7, step 8    rank 1: ...            forward   step 7   rank 0 1 2 3
    host b   rank 2: ...               rank 3: ...      -->             step 8   rank 0 1 2 3
    each rank in the order of its records                     backward  step 7   ...

A server would sort by comparing rows over six columns. Three stable sorts of small numbers take a fifth of that time.
The server does not sort rows that are already sorted.
"""

import time
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from telemetry.collector.claims import Claims, LostClaimError, Openings
from telemetry.collector.counters import Counters
from telemetry.collector.stored_numbers import Rank, StoredNumbers, records_lost
from telemetry.errors import RankscopeError, RefusedRowsError, UnreachableError
from telemetry.printable import log
from telemetry.stores.interface import Reader, Store
from telemetry.tables import NO_FOLDER, owned
from telemetry.wire.codec import Ack, Batch, rank_runs

MAX_MESSAGE = 300
"""Characters of an error, which may contain received text."""


def storing_failed(error: Exception) -> UnreachableError:
    """The error for the sender, which can retry. A defect is also logged, and does not end the writing thread."""
    if isinstance(error, UnreachableError):
        return error
    message = f"storing failed: {type(error).__name__}: {str(error)[:MAX_MESSAGE]}"
    log(f"rankscope collect: {message}")
    return UnreachableError(message, hint="see the collector's log; nothing is lost")


SORTED_BY = ("stage", "step", "rank")
"""The key of ``spans`` after run and attempt. Within it, the records of a rank are in the order of time."""
_NARROW = 2**16


def one_block(table: str, parts: Iterable[tuple[Batch, pa.Table]]) -> pa.Table:
    """All rows of ``parts`` as one table, in the order of the store. ``parts``: batches of ``table``, each with the
    rows that must be stored; at least one row in total."""
    by_attempt: dict[tuple[str, int], list[pa.Table]] = {}
    for batch, rows in parts:
        by_attempt.setdefault((batch.run_id, batch.attempt), []).append(rows.replace_schema_metadata(None))
    blocks = []
    for attempt in sorted(by_attempt):
        rows = pa.concat_tables(by_attempt[attempt])
        blocks.append(owned(as_stored(rows) if table == "spans" else rows, *attempt))
    return pa.concat_tables(blocks)


def as_stored(spans: pa.Table) -> pa.Table:
    """Spans of one attempt, sorted by stage, step and rank. Equal rows keep their order."""
    spans = spans.combine_chunks()
    order = np.arange(spans.num_rows)
    for name in reversed(SORTED_BY):
        values: npt.NDArray[Any] = spans[name].to_numpy()
        values = values - values.min(initial=np.iinfo(values.dtype).max)
        if values.max(initial=0) < _NARROW:
            values = values.astype(np.uint16)  # NumPy sorts these with a radix sort
        order = order[np.argsort(values[order], kind="stable")]
    return spans.take(pa.array(order))


Outcome = Ack | RankscopeError
"""The result for a batch. UnreachableError: send it again."""


class RowWriter:
    """Stores batches. For one thread; several writers may share a database."""

    def __init__(self, store: Store, reader: Reader, counters: Counters) -> None:
        self._store = store
        self._claims = Claims(store, reader)
        self._numbers = StoredNumbers(reader)
        self._openings = Openings(reader, self._numbers)
        self._counters = counters

    def store(self, table: str, batches: Sequence[Batch]) -> list[Outcome]:
        """The outcome of each of ``batches``, all of ``table``, in their order."""
        ranks = [_ranks_of(batch) for batch in batches]
        outcomes: dict[int, Outcome] = {}
        while left := [number for number in range(len(batches)) if number not in outcomes]:
            wanted = set[Rank]().union(*(ranks[number] for number in left))
            try:
                results = self._store_all(table, [batches[number] for number in left], wanted)
                outcomes.update(zip(left, results, strict=True))
            except LostClaimError as lost:
                self._claims.drop(lost.ranks)
                self._forget(wanted)
                self._counters.claims_lost(len(lost.ranks))
                reason = UnreachableError(
                    "another collector has claimed these ranks", hint="retry with either collector; nothing is lost"
                )
                outcomes.update((number, reason) for number in left if ranks[number] & lost.ranks)
            except Exception as error:
                # It is unknown whether the rows are stored, or will be. A new claim waits until that is decided.
                self._claims.drop(wanted)
                self._forget(wanted)
                reason = storing_failed(error)
                outcomes.update((number, reason) for number in left)
        for attempt in self._claims.prune():
            self._numbers.forget_attempt(attempt)
            self._openings.forget_attempt(attempt)
        return [outcomes[number] for number in range(len(batches))]

    def _store_all(self, table: str, batches: list[Batch], ranks: set[Rank]) -> list[Outcome]:
        """Store all of ``batches`` that are not refused, in one insert.

        Raises:
            LostClaimError: another collector has claimed some of ``ranks``; nothing is stored.
            Exception: anything else; it is unknown what is stored.
        """
        self._claims.take(ranks)
        found = [self._fresh(batch) for batch in batches]
        parts = [
            (batch, rows)
            for batch, rows in zip(batches, found, strict=True)
            if isinstance(rows, pa.Table) and rows.num_rows
        ]
        if parts:
            began_s = time.perf_counter()
            confirm = (lambda: self._claims.check(ranks)) if ranks else None
            self._store.insert(table, one_block(table, parts), confirm=confirm)
            self._counters.inserted(table, time.perf_counter() - began_s)
        if table == "marks":
            self._counters.records_lost(sum(records_lost(rows) for _, rows in parts))
        return [
            Ack(rows=rows.num_rows, duplicates=batch.rows.num_rows - rows.num_rows)
            if isinstance(rows, pa.Table)
            else rows
            for batch, rows in zip(batches, found, strict=True)
        ]

    def _fresh(self, batch: Batch) -> pa.Table | RankscopeError:
        """The rows of ``batch`` to store, or the reason for storing none."""
        if "rank" not in batch.rows.column_names or not batch.rows.num_rows:
            return batch.rows
        numbered = _is_numbered(batch)
        try:
            if batch.table == "ranks":
                return self._openings.announce(batch)
            if refusal := self._openings.refusal(batch, claimed=numbered):
                return refusal
            return _with_folders(self._numbers.trim(batch), batch) if numbered else batch.rows
        except RefusedRowsError as refusal:
            return refusal

    def _forget(self, ranks: set[Rank]) -> None:
        self._numbers.forget(ranks)
        self._openings.forget(ranks)


def _is_numbered(batch: Batch) -> bool:
    return "seq" in batch.rows.column_names


def _ranks_of(batch: Batch) -> set[Rank]:
    """The ranks to hold while ``batch`` is stored. Empty for other tables, where readers count duplicate rows once."""
    if not batch.rows.num_rows or not (_is_numbered(batch) or batch.table == "ranks"):
        return set()
    rank = batch.rows["rank"].to_numpy()
    starts, _ = rank_runs(rank)
    return {(batch.run_id, batch.attempt, number) for number in np.unique(rank[starts]).tolist()}


def _with_folders(rows: pa.Table, batch: Batch) -> pa.Table:
    rank_of_row = rows["rank"].to_numpy()
    starts, lengths = rank_runs(rank_of_row)
    opened_ns = [batch.openings.get(rank, NO_FOLDER) for rank in rank_of_row[starts].tolist()]
    return rows.append_column("opened_ns", pa.array(np.repeat(np.array(opened_ns, np.int64), lengths)))
