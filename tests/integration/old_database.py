"""A database with rows, as the first version of rankscope created it, and its state after an upgrade.

    python -m tests.integration.old_database make URL    create the first schema and its rows
    python -m tests.integration.old_database tell URL    upgrade, and print checksums and schema as JSON

Only one process can open a folder at a time, so tests of folders run these commands.
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

NUM_SPANS = 5000
COLUMNS = {
    "spans": [name for name in TABLES["spans"].names if name != "clock"],
    "marks": TABLES["marks"].names,
    "samples": TABLES["samples"].names,
    "ranks": ["rank", "host", "local_rank", "pid", "dp_size", "pp_size", "tp_size", "started_ns", "meta"],
    "heartbeats": TABLES["heartbeats"].names,
}
"""Columns of the first version. The tables may have more columns since."""


def make_first(store: MigratingStore, newest: int = 1) -> None:
    """Run the first script, or all scripts up to ``newest``, and insert rows of two runs."""
    database = store.database
    database.execute(migrations.LEDGER)
    for number, path in enumerate(sorted(migrations.SCHEMA.glob("[0-9]*.sql"))[:newest], 1):
        for statement in statements(path.read_text(), migrations.version_of(database)):
            database.execute(statement)
        database.execute(f"INSERT INTO migrations (number, name) SELECT {number}, '{path.stem}'")
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
    """The number of rows of each table of the first schema, and the sum of their hashes."""
    return {
        table: list(store.query(f"SELECT count() AS n, {_hash(names)} AS hash FROM {table}").to_pylist()[0].values())
        for table, names in COLUMNS.items()
    }


def _hash(names: list[str]) -> str:
    return f"sum(cityHash64({', '.join(f'toString({name})' for name in ['run_id', 'attempt', *names])}))"


def shape(store: MigratingStore) -> list[list[Any]]:
    """Every column, and the engine, order and projections of every table, to compare two schemas."""
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
