"""Spans of a run that is over, in the order in which they are stored.

    rank 0   operations by start   0 1 2 3 ... n-1      steps   n n+1 ...
    rank 1   operations by start   0 1 2 ...            steps   ...

A rank's steps bear its highest numbers, so they can be written after all operations: a run shows in lists by its
steps and its ranks, hence one that is half written does not show.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from telemetry.stages import Stage, Stream
from telemetry.tables import SPANS

DEFAULTS: Mapping[str, int] = {
    "microbatch": -1,
    "chunk": -1,
    "peer": -1,
    "op_seq": 0,
    "cpu_ns": -1,
    "issue_ns": 0,
    "size_bytes": 0,
    "clock": 0,
}
"""What a column holds where the source does not say."""

STREAM_OF_STAGE = np.full(256, int(Stream.HOST), dtype=np.uint8)
for _stage in Stage:
    STREAM_OF_STAGE[int(_stage)] = int(_stage.stream)


def numbered(columns: Mapping[str, npt.NDArray[Any]], ties: Sequence[npt.NDArray[Any]] = ()) -> pa.Table:
    """Columns of ``telemetry.tables.SPANS`` as a table, ordered by rank and numbered.

    Args:
        columns: rank, stage, step, start_ns, duration_ns, and any others but ``seq``; ``stream`` is the stage's where
            left out. All of one length.
        ties: what orders spans of a rank that start together, the first key first; then their order here.
    """
    is_step = columns["stage"] == int(Stage.STEP)
    order = np.lexsort((*reversed(ties), columns["start_ns"], is_step, columns["rank"]))
    rank = columns["rank"][order]
    first = np.flatnonzero(np.concatenate([np.ones(min(len(rank), 1), dtype=bool), rank[1:] != rank[:-1]]))
    seq = np.arange(len(rank)) - np.repeat(first, np.diff(first, append=len(rank)))
    made = {name: pa.array(values[order]) for name, values in columns.items()}
    made["seq"] = pa.array(seq)
    made.setdefault("stream", pa.array(STREAM_OF_STAGE[columns["stage"][order]]))
    for name, value in DEFAULTS.items():
        made.setdefault(name, pa.repeat(pa.scalar(value, SPANS.field(name).type), len(rank)))
    return pa.Table.from_arrays([made[field.name].cast(field.type) for field in SPANS], schema=SPANS)
