"""How far the numbers of a rank's records may jump from one row to the next.

    stored below 1000   next row 1001 ... 1000 + MAX_JUMP    other tables have the numbers between, or texts of marks
                        next row beyond that                 refused, unless a mark `records-lost` fills the hole

    marks:  ... | seq 999 | seq 8999999, records-lost, "8999000 records ..." | seq 9000000 ...

An agent reads one segment of one rank at a time, so without a loss it never skips more numbers than a spool holds.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from telemetry.collector.losses import lost_in
from telemetry.errors import JumpError
from telemetry.record.rank_file import SEGMENT_RECORDS
from telemetry.settings import MAX_SEGMENTS
from telemetry.wire.codec import Batch

MAX_JUMP = MAX_SEGMENTS * SEGMENT_RECORDS
"""Records that a spool holds of a rank, as it is usually set."""


def far_jumps(
    rows: pa.Table,
    seq: npt.NDArray[np.uint64],
    starts: npt.NDArray[np.intp],
    stored_below: npt.NDArray[np.uint64],
) -> npt.NDArray[np.intp]:
    """The rows that jump too far, and are no mark of the records that were lost in between.

    Args:
        starts: where runs of equal ranks start.
        stored_below: for each run, one past the last number that is known before it.
    """
    before = np.empty_like(seq)
    before[1:] = seq[:-1] + np.uint64(1)
    before[starts] = stored_below
    far = np.flatnonzero((seq > before) & (seq - before > MAX_JUMP))
    if not len(far) or "text" not in rows.column_names:
        return far
    explained = lost_in(rows.take(pa.array(far))) + np.uint64(MAX_JUMP)
    return far[(seq - before)[far] + np.uint64(1) > explained]


def jump_error(batch: Batch, far: npt.NDArray[np.intp], position: Mapping[int, int]) -> JumpError:
    """``far``: the rows of ``batch`` that jump; ``position``: of each rank, one past the last number that is stored."""
    ranks = batch.rows["rank"].to_numpy()[far].tolist()
    stored = {rank: position[rank] for rank in ranks}
    rank, seq = ranks[0], batch.rows["seq"][int(far[0])].as_py()
    return JumpError(
        f"run {batch.run_id!r}, attempt {batch.attempt}: {batch.table} of rank {rank} jump from record "
        f"{stored[rank]} to {seq}: more than {MAX_JUMP}, what a spool holds",
        hint="records are numbered from 0 in each folder; a mark records-lost gives the number of missing ones",
        stored=stored,
    )
