"""Rows of many batches as one block, in the order in which the store keeps them.

    host a   rank 0: step 7, step 8    rank 1: ...            forward   step 7   rank 0 1 2 3
    host b   rank 2: ...               rank 3: ...      -->             step 8   rank 0 1 2 3
    each rank in the order of its records                     backward  step 7   ...

A server sorts by six columns, row against row; here it is three stable sorts of small numbers, a fifth of the work.
What it finds sorted it stores as it is.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from telemetry.tables import owned
from telemetry.wire.codec import Batch

SORTED_BY = ("stage", "step", "rank")
"""The key of ``spans`` behind run and attempt; within it a rank's records come in the order of time."""
_NARROW = 2**16


def one_block(table: str, parts: Iterable[tuple[Batch, pa.Table]]) -> pa.Table:
    """``parts``: batches of ``table``, each with those of its rows that are to be stored; one row at least."""
    by_attempt: dict[tuple[str, int], list[pa.Table]] = {}
    for batch, rows in parts:
        by_attempt.setdefault((batch.run_id, batch.attempt), []).append(rows.replace_schema_metadata(None))
    blocks = []
    for attempt in sorted(by_attempt):
        rows = pa.concat_tables(by_attempt[attempt])
        blocks.append(owned(as_stored(rows) if table == "spans" else rows, *attempt))
    return pa.concat_tables(blocks)


def as_stored(spans: pa.Table) -> pa.Table:
    """Spans of one attempt by stage, step and rank; otherwise in the order they come in."""
    spans = spans.combine_chunks()
    order = np.arange(spans.num_rows)
    for name in reversed(SORTED_BY):
        values = _narrowed(spans[name].to_numpy())
        order = order[np.argsort(values[order], kind="stable")]
    return spans.take(pa.array(order))


def _narrowed(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The same order in numbers of 16 bits where that is possible: those are sorted digit by digit."""
    above: npt.NDArray[Any] = values - values.min(initial=np.iinfo(values.dtype).max)
    return above.astype(np.uint16) if above.max(initial=0) < _NARROW else above
