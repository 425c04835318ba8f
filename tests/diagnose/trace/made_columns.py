"""Spans as columns, written down row by row."""

import numpy as np

from diagnose.model.operations import SPAN_COLUMNS, SpanColumns
from telemetry.stages import Stage

NOTHING = {"microbatch": -1, "chunk": -1, "peer": -1, "cpu_ns": -1}


def made_columns(*rows: tuple[int, Stage, int, int], step: int = 0, peers: tuple[int, ...] = ()) -> SpanColumns:
    """Spans of rank, stage, start and end, numbered in order; ``peers``: of each row, none when left out."""
    columns = {name: np.full(len(rows), NOTHING.get(name, 0), dtype=np.int64) for name in SPAN_COLUMNS}
    columns["rank"] = np.array([row[0] for row in rows], dtype=np.int64)
    columns["stage"] = np.array([int(row[1]) for row in rows], dtype=np.int64)
    columns["stream"] = np.array([int(row[1].stream) for row in rows], dtype=np.int64)
    columns["start_ns"] = np.array([row[2] for row in rows], dtype=np.int64)
    columns["duration_ns"] = np.array([row[3] - row[2] for row in rows], dtype=np.int64)
    columns["step"][:] = step
    columns["seq"] = np.arange(len(rows))
    if peers:
        columns["peer"] = np.array(peers)
    return SpanColumns(**columns)
