"""The schema for a cluster, in one process with a cluster of one server. No real cluster runs here."""

import json
import re
from typing import Any

import pytest

from telemetry.errors import UsageError
from telemetry.stores.cluster import clustered
from telemetry.stores.migrations import SCHEMA
from telemetry.stores.open import open_store
from telemetry.tables import TABLES
from tests.clickhouse_server import ClickHouseServer
from tests.forkserver import output_of


@pytest.fixture(scope="module")
def cluster_report() -> dict[str, Any]:
    """Results from an engine with a cluster of one server."""
    printed = output_of("-m", "tests.telemetry.clustered_store")
    answer: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return answer


def test_every_statement_for_a_cluster_is_valid_sql(cluster_report: dict[str, Any]) -> None:
    assert len(cluster_report["statements"]) > 2 * len(list(SCHEMA.glob("0*.sql")))
    assert cluster_report["not_sql"] == []


def test_every_statement_except_inserts_into_migrations_runs_on_the_cluster(cluster_report: dict[str, Any]) -> None:
    alone = [sql for sql in cluster_report["statements"] if " ON CLUSTER one" not in sql]
    assert all(sql.startswith("INSERT INTO migrations") for sql in alone)


def test_every_table_has_a_replicated_local_table(cluster_report: dict[str, Any]) -> None:
    assert set(cluster_report["replicated"]) >= {f"{table}_local" for table in TABLES} | {"migrations"}


def test_rows_of_one_rank_host_or_alert_are_stored_on_one_shard(cluster_report: dict[str, Any]) -> None:
    keys = dict(
        re.findall(
            r"EXISTS (\w+) ON CLUSTER one AS .* ENGINE = Distributed\(.*?, (\w+\([^)]*\))\)",
            "\n".join(cluster_report["statements"]),
        )
    )
    for table, columns in TABLES.items():
        owner = next(name for name in ("rank", "host", "fingerprint") if name in columns.names)
        assert keys[table] == f"cityHash64(run_id, {owner})", table
    assert keys["claims"] == keys["spans"]


def test_distributed_tables_answer_every_query_like_plain_tables(cluster_report: dict[str, Any]) -> None:
    assert cluster_report["differ"] == []


def test_query_for_inserts_that_run_on_any_server_is_valid(cluster_report: dict[str, Any]) -> None:
    assert cluster_report["running"] == ""


def test_column_changes_apply_to_both_tables_and_storage_changes_to_the_local_one() -> None:
    def on(statement: str) -> list[str]:
        return clustered(statement, cluster="c", database="d")

    added = on("ALTER TABLE t ADD COLUMN IF NOT EXISTS x Int64 CODEC(Delta, ZSTD(1))")
    assert added == [
        "ALTER TABLE t_local ON CLUSTER c ADD COLUMN IF NOT EXISTS x Int64 CODEC(Delta, ZSTD(1))",
        "ALTER TABLE t ON CLUSTER c ADD COLUMN IF NOT EXISTS x Int64",
    ]
    assert on("ALTER TABLE t MODIFY COLUMN x CODEC(ZSTD(1))") == [
        "ALTER TABLE t_local ON CLUSTER c MODIFY COLUMN x CODEC(ZSTD(1))"
    ]
    assert on("-- why\nALTER TABLE t MATERIALIZE PROJECTION p") == [
        "-- why\nALTER TABLE t_local ON CLUSTER c MATERIALIZE PROJECTION p"
    ]


def test_replicated_engine_keeps_the_parameters_of_the_plain_engine() -> None:
    local, _ = clustered(
        "CREATE TABLE IF NOT EXISTS t (run_id String, rank UInt32)\nENGINE = ReplacingMergeTree(rank)\nORDER BY rank",
        cluster="c", database="d",
    )  # fmt: skip
    path = "'/clickhouse/tables/{shard}/{database}/t_local', '{shard}-{replica}'"
    assert local.endswith(f"ENGINE = ReplicatedReplacingMergeTree({path}, rank)\nORDER BY rank")


@pytest.mark.clickhouse
def test_cluster_of_servers_that_are_too_old_is_refused(clickhouse_server: ClickHouseServer) -> None:
    open_store(clickhouse_server.url("old")).close()
    with pytest.raises(UsageError, match="23 or newer"):
        open_store(f"{clickhouse_server.url('old')}?cluster=one")
