"""A database as the first version of rankscope left it, with rows in it; and what is to be seen of it later.

    python -m tests.integration.old_database make URL    the first schema, and its rows
    python -m tests.integration.old_database tell URL    brought up to date: checksums and shape, as JSON

A folder is opened by one process at a time, so tests of folders have these run.
"""

import json
import sys
from typing import Any

import numpy as np
import pyarrow as pa

from telemetry.stores import migrations
from telemetry.stores.cluster import is_modern, statements
from telemetry.stores.interface import Store
from telemetry.stores.open import MigratingStore, find_store
from telemetry.tables import TABLES
from tests.telemetry.made_rows import made, owned

FIRST = "0001_tables"
NUM_SPANS = 5000
COLUMNS = {
    "spans": [name for name in TABLES["spans"].names if name != "clock"],
    "marks": TABLES["marks"].names,
    "samples": TABLES["samples"].names,
    "ranks": ["rank", "host", "local_rank", "pid", "dp_size", "pp_size", "tp_size", "started_ns", "meta"],
    "heartbeats": TABLES["heartbeats"].names,
}
"""What the first version stored. The tables may have grown since."""


def make_first(store: MigratingStore) -> None:
    """The first script alone, and rows of two runs."""
    database = store.database
    script = (migrations.SCHEMA / f"{FIRST}.sql").read_text()
    for statement in [migrations.LEDGER, *statements(script, migrations.version_of(database))]:
        database.execute(statement)
    database.execute(f"INSERT INTO migrations (number, name) SELECT 1, '{FIRST}'")
    for attempt, run_id in enumerate(("nightly", "it's")):
        for table, rows in _rows(attempt).items():
            store.insert(table, owned(rows.select(COLUMNS[table]), run_id=run_id, attempt=attempt))


def _rows(seed: int) -> dict[str, pa.Table]:
    random = np.random.default_rng(seed)
    spans = {field.name: pa.array(random.integers(0, 100, NUM_SPANS)).cast(field.type) for field in TABLES["spans"]} | {
        "seq": pa.array(np.arange(NUM_SPANS, dtype=np.uint64))
    }
    return {
        "spans": pa.table(spans, schema=TABLES["spans"]),
        "marks": made("marks", ({"rank": seq % 8, "seq": seq, "text": f"naïve 'mark' {seq}"} for seq in range(50))),
        "samples": made("samples", ({"rank": 7, "seq": seq, "metric": "loss", "value": seq / 3} for seq in range(90))),
        "ranks": made("ranks", ({"rank": rank, "host": f"h{rank}", "pid": rank + 100} for rank in range(8))),
        "heartbeats": made("heartbeats", ({"rank": rank, "at_ns": 5, "recorded": rank} for rank in range(8))),
    }


def checksums(store: Store) -> dict[str, list[int]]:
    """Of each table of the first schema: rows, and the sum of their hashes."""
    return {
        table: list(store.query(f"SELECT count() AS n, {_hash(names)} AS hash FROM {table}").to_pylist()[0].values())
        for table, names in COLUMNS.items()
    }


def _hash(names: list[str]) -> str:
    return f"sum(cityHash64({', '.join(f'toString({name})' for name in ['run_id', 'attempt', *names])}))"


def shape(store: MigratingStore) -> list[list[Any]]:
    """Every column, and every table's engine, order and projections: what tells two schemas apart."""
    here, modern = "database = currentDatabase()", is_modern(migrations.version_of(store.database))
    codec = "compression_codec" if modern else "''"
    columns = f"SELECT table, name, type, default_expression, {codec} AS codec FROM system.columns WHERE {here}"
    made = "create_table_query" if modern else "engine"
    tables = f"SELECT name, engine_full, {made} AS sql FROM system.tables WHERE {here}"
    rows = [list(row.values()) for sql in (columns, tables) for row in store.query(sql).to_pylist()]
    return sorted([value.replace(f" {store.database.name}.", " ") for value in row] for row in rows)


def _told(what: str, url: str) -> dict[str, Any]:
    store = find_store(url)
    try:
        if what == "make":
            make_first(store)
            return {"checksums": checksums(store)}
        store.migrate()
        return {"checksums": checksums(store), "shape": shape(store)}
    finally:
        store.close()


if __name__ == "__main__":
    print(json.dumps(_told(*sys.argv[1:])))
