"""Who is stored up to where: what makes a resent batch harmless.

Rows of a rank are stored in the order of ``seq``, so one number a rank says all that is stored. The store itself
holds that number (its largest seq); here it is kept at hand, and read again after anything that may have made it wrong.
"""

from collections import OrderedDict
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from telemetry.ship.wire import Batch
from telemetry.stores.queries import HighWater
from telemetry.stores.reader import Reader

MAX_ATTEMPTS = 256
"""Attempts (times tables) kept at hand; the least recently used is read from the store again."""

Key = tuple[str, str, int]
"""Table, run, attempt."""


@dataclass(slots=True)
class Ledger:
    """High-water marks by table and attempt. Not for several threads.

    Raises:
        UnreachableError: from :meth:`trim`, when a mark must be read and the store does not answer.
    """

    reader: Reader
    _marks: OrderedDict[Key, dict[int, int]] = field(default_factory=OrderedDict)

    def trim(self, batch: Batch) -> pa.Table:
        """The rows of ``batch`` that are not stored yet. They count as stored from now on: see :meth:`forget`."""
        if "seq" not in batch.rows.column_names or not batch.rows.num_rows:
            return batch.rows
        marks = self._of(batch)
        rank, seq = batch.rows["rank"].to_numpy(), batch.rows["seq"].to_numpy()
        ranks, row_of_rank = np.unique(rank, return_inverse=True)
        stored_below = np.array([marks.get(int(one), 0) for one in ranks], dtype=np.uint64)
        new = seq >= stored_below[row_of_rank]
        top = np.zeros(len(ranks), dtype=np.uint64)
        np.maximum.at(top, row_of_rank, seq + np.uint64(1))
        marks.update(zip(ranks.tolist(), np.maximum(top, stored_below).tolist(), strict=True))
        return batch.rows if bool(new.all()) else batch.rows.filter(pa.array(new))

    def forget(self, batch: Batch) -> None:
        """The insert failed: what is stored of this attempt must be read again."""
        self._marks.pop(_key(batch), None)

    def prune(self) -> None:
        """Let go of the marks not used for longest. Only when all rows trimmed so far are stored."""
        while len(self._marks) > MAX_ATTEMPTS:
            self._marks.popitem(last=False)

    def _of(self, batch: Batch) -> dict[int, int]:
        key = _key(batch)
        if key not in self._marks:
            query = HighWater(table=batch.table, run_id=batch.run_id, attempt=batch.attempt)  # type: ignore[arg-type]
            stored = self.reader.read(query)
            ranks, marks = stored["rank"].to_pylist(), stored["next_seq"].to_pylist()
            self._marks[key] = dict(zip(ranks, marks, strict=True))
        self._marks.move_to_end(key)
        return self._marks[key]


def _key(batch: Batch) -> Key:
    return batch.table, batch.run_id, batch.attempt
