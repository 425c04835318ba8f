"""The schema of a cluster on the current engine, in one process: one shard, no Keeper.

    formatQuery   every statement as it is sent to servers
    executed      without ON CLUSTER (it needs Keeper): Replicated tables over the engine's test keeper,
                  then plain tables in their place, which are filled and queried

    python -m tests.telemetry.clustered_store

A process gives its configuration to the first engine that it opens, so this runs in a separate process.
"""

import json
import os
import re
import tempfile
import traceback
from dataclasses import replace
from pathlib import Path

from chdb.session import Session

from telemetry.errors import RankscopeError
from telemetry.stores import migrations, retention
from telemetry.stores.cluster import databases_of_shard, pending_inserts, running_on_cluster, shards_of_keeper
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from tests.telemetry.test_stores_queries import EVERY_QUERY, fill

_CONFIG = """<clickhouse>
  <remote_servers><one><shard><internal_replication>true</internal_replication>
    <replica><host>127.0.0.1</host><port>9000</port></replica></shard></one></remote_servers>
  <macros><shard>1</shard><replica>a</replica></macros>
  <zookeeper><implementation>testkeeper</implementation></zookeeper>
  <tcp_port>9000</tcp_port>
</clickhouse>"""
_REPLICATED = re.compile(r"Replicated(\w*MergeTree)\('[^']*', '[^']*'(?:, )?([^)]*)\)")
KEEPER_QUERIES = (shards_of_keeper(), databases_of_shard("1"), pending_inserts(["1", "2"], database="d"))
"""The engine has no ``system.zookeeper``, so they are only parsed."""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "config.xml")
        config.write_text(_CONFIG)
        engine = Session(f":memory:?config-file={config}")
        empty = EmbeddedStore()
        told = {
            "statements": planned(empty),
            "not_sql": [sql for sql in planned(empty) if not is_sql(empty, sql)],
            "replicated": replicated_tables(EmbeddedStore()),
            "differ": different_answers(EmbeddedStore(), EmbeddedStore()),
            "keeper_not_sql": [sql for sql in KEEPER_QUERIES if not is_sql(empty, sql)],
            "running": str(engine.query(running_on_cluster("one", "'nobody'"), "TSV")),
        }
    print(json.dumps(told), flush=True)


def planned(store: EmbeddedStore) -> list[str]:
    """All statements for the servers of cluster ``one``, starting from an empty database."""
    database = replace(store.database, cluster="one")
    return migrations.plan(database) + retention.plan(database, retention.Limits(raw_days=30))


def is_sql(store: EmbeddedStore, statement: str) -> bool:
    try:
        store.query("SELECT formatQuery(%(sql)s) AS sql", {"sql": statement})
    except RankscopeError:
        return False
    return True


def replicated_tables(store: EmbeddedStore) -> list[str]:
    """The tables that the engine created with a Replicated engine."""
    for statement in planned(store):
        if "CREATE TABLE" in statement:
            store.database.execute(statement.replace(" ON CLUSTER one", ""))
    made = "SELECT name FROM system.tables WHERE database = currentDatabase() AND engine LIKE 'Replicated%'"
    return sorted(store.query(made)["name"].to_pylist())


def different_answers(plain: EmbeddedStore, spread: EmbeddedStore) -> list[str]:
    """The queries whose answers differ between plain and distributed tables."""
    plain.migrate()
    for statement in planned(spread):
        spread.database.execute(_REPLICATED.sub(r"\1(\2)", statement.replace(" ON CLUSTER one", "")))
    fill(plain)
    fill(spread)
    assert spread.query("SELECT count() AS n FROM spans_local") == plain.query("SELECT count() AS n FROM spans")
    ours, theirs = StoreReader(plain), StoreReader(spread)
    return [type(query).__name__ for query in EVERY_QUERY if ours.read(query) != theirs.read(query)]


if __name__ == "__main__":
    status = 1
    try:
        main()
        status = 0
    except Exception:
        traceback.print_exc()
    finally:
        # The engine's test keeper does not end by itself.
        os._exit(status)
