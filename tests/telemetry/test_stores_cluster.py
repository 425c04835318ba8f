"""The schema for a cluster, in one process with a cluster of one server. ``tests/cluster`` has several servers."""

import json
import re
from functools import partial
from typing import Any

import pytest

from telemetry.errors import UsageError
from telemetry.stores import old_cluster
from telemetry.stores.cluster import check_version, clustered
from telemetry.stores.inserts import RunningInserts
from telemetry.stores.interface import Query
from telemetry.stores.migrations import SCHEMA
from telemetry.stores.old_cluster import distributed_tables, reduced
from telemetry.stores.open import open_store
from telemetry.tables import TABLES
from tests.clickhouse_server import ClickHouseServer
from tests.each_case import each_case
from tests.forkserver import output_of
from tests.telemetry.test_stores_queries import EVERY_QUERY


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


@each_case("version", [(19, 1), (22, 8)])
def test_cluster_of_servers_that_are_too_old_is_refused(version: tuple[int, int]) -> None:
    with pytest.raises(UsageError, match="23 or newer"):
        check_version(version)


@pytest.mark.clickhouse
def test_cluster_that_the_server_does_not_know_is_refused(clickhouse_server: ClickHouseServer) -> None:
    with pytest.raises(UsageError, match="has no cluster one"):
        open_store(f"{clickhouse_server.url('old')}?cluster=one")


def test_queries_for_pending_inserts_are_valid_sql(cluster_report: dict[str, Any]) -> None:
    assert cluster_report["keeper_not_sql"] == []


@each_case("query", EVERY_QUERY)
def test_subqueries_run_once_for_all_shards(query: Query) -> None:
    """Without GLOBAL, a server refuses to run them on two shards."""
    assert re.findall(r"(?<!GLOBAL )(?<!GLOBAL NOT )\bIN\s*\(\s*SELECT", query.sql()) == []
    assert re.findall(r"(?<!ARRAY )(?<!GLOBAL ANY LEFT )JOIN", query.sql()) == []


def test_form_for_old_servers_names_the_database_and_replaces_distributed_tables() -> None:
    script = "CREATE TABLE IF NOT EXISTS t (run_id String, rank UInt32)\nENGINE = MergeTree\nORDER BY rank"
    local, spread = clustered(script, cluster="c", database="d")
    of_old = partial(reduced, database="d", distributed=distributed_tables([local, spread]))
    assert of_old(local) == [local.replace("{database}", "d")]
    created = spread.replace(" AS t_local ", " AS d.t_local ")
    assert of_old(spread) == [created]
    added = clustered("ALTER TABLE t ADD COLUMN x Int64", cluster="c", database="d")
    assert [text for statement in added for text in of_old(statement)] == [
        "ALTER TABLE t_local ON CLUSTER c ADD COLUMN x Int64",
        "DROP TABLE IF EXISTS t ON CLUSTER c",
        created,
    ]


@each_case(("num_replicas", "quorum"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_old_servers_get_the_majority_of_replicas_as_a_number(num_replicas: int, quorum: int) -> None:
    assert old_cluster.settings(num_replicas)["insert_quorum"] == quorum


def test_settle_waits_until_the_rows_of_all_inserts_are_visible() -> None:
    pending = iter([{"spans"}, {"spans"}, {"marks"}])
    RunningInserts("", running=set, pending=lambda: next(pending)).wait_for_all()
    assert list(pending) == []
