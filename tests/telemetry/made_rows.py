"""Batches with known content, in the columns of ``telemetry.tables``."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from telemetry import tables
from telemetry.stages import Stage
from telemetry.stores.interface import Store
from telemetry.wire.codec import labelled

SECOND_NS = 1_000_000_000
DEFAULTS: dict[str, Any] = {
    "microbatch": -1,
    "chunk": -1,
    "peer": -1,
    "cpu_ns": -1,
    "name": "",
    "text": "",
    "meta": "{}",
    **dict.fromkeys(("dp_size", "pp_size", "tp_size"), 1),
}


def made(table: str, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Rows of a table. A missing column gets its default value."""
    schema = tables.TABLES[table]
    usual = {name: DEFAULTS.get(name, "" if schema.field(name).type == pa.string() else 0) for name in schema.names}
    return pa.Table.from_pylist([{**usual, **row} for row in rows], schema=schema)


def numbered_spans(first_seq: int, count: int, *, rank: int = 0) -> pa.Table:
    """Forward spans of one rank, numbered from ``first_seq``."""
    alike = made("spans", [{"rank": rank, "stage": int(Stage.FORWARD_COMPUTE), "duration_ns": 1}])
    seq = np.arange(first_seq, first_seq + count)
    columns = {name: pa.repeat(alike[name][0], count) for name in alike.column_names}
    return pa.table(columns | {"seq": seq, "step": seq // 10, "start_ns": seq}).cast(alike.schema)


def of_run(
    rows: pa.Table, run_id: str = "run", attempt: int = 0, openings: Mapping[int, int] | None = None
) -> pa.Table:
    """Rows labelled for the wire, as an agent does. Without ``openings`` they belong to no folder."""
    return labelled(rows, run_id, attempt, openings)


def owned(rows: pa.Table, *, run_id: str = "run", attempt: int = 0) -> pa.Table:
    """Rows with the columns of their run and attempt."""
    return tables.owned(rows, run_id, attempt)


def insert(store: Store, table: str, rows: pa.Table, *, run_id: str = "run", attempt: int = 0) -> None:
    """Insert rows directly into a store."""
    store.insert(table, owned(rows, run_id=run_id, attempt=attempt))
