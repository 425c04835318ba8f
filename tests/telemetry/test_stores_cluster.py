"""The schema over a cluster, as far as one process can be one. No cluster of servers runs here."""

import json
import re
import subprocess
import sys
from typing import Any

import pytest

from telemetry.errors import UsageError
from telemetry.stores.cluster import clustered
from telemetry.stores.migrations import SCHEMA
from telemetry.stores.open import open_store
from telemetry.tables import TABLES
from tests.clickhouse_server import ClickHouseServer


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    """What an engine with a cluster of one says."""
    command = [sys.executable, "-m", "tests.telemetry.clustered_store"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def test_every_statement_for_a_cluster_is_sql(told: dict[str, Any]) -> None:
    assert len(told["statements"]) > 2 * len(list(SCHEMA.glob("0*.sql")))
    assert told["not_sql"] == []


def test_every_statement_goes_to_all_servers_but_the_note_that_it_did(told: dict[str, Any]) -> None:
    alone = [sql for sql in told["statements"] if " ON CLUSTER one" not in sql]
    assert all(sql.startswith("INSERT INTO migrations") for sql in alone)


def test_every_table_that_rows_come_in_has_a_replicated_one_beneath(told: dict[str, Any]) -> None:
    assert set(told["replicated"]) >= {f"{table}_local" for table in TABLES} | {"migrations"}


def test_rows_of_a_rank_stay_together_and_so_do_those_of_a_host_or_an_alert(told: dict[str, Any]) -> None:
    keys = dict(
        re.findall(
            r"EXISTS (\w+) ON CLUSTER one AS .* ENGINE = Distributed\(.*?, (\w+\([^)]*\))\)",
            "\n".join(told["statements"]),
        )
    )
    for table, columns in TABLES.items():
        owner = next(name for name in ("rank", "host", "fingerprint") if name in columns.names)
        assert keys[table] == f"cityHash64(run_id, {owner})", table
    assert keys["claims"] == keys["spans"]


def test_spread_tables_answer_every_question_as_plain_ones_do(told: dict[str, Any]) -> None:
    assert told["differ"] == []


def test_the_inserts_that_run_on_any_server_can_be_asked_for(told: dict[str, Any]) -> None:
    assert told["running"] == ""


def test_columns_change_in_both_tables_and_what_is_about_storage_in_one() -> None:
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


def test_an_engine_keeps_what_it_was_told_when_it_is_replicated() -> None:
    local, _ = clustered(
        "CREATE TABLE IF NOT EXISTS t (run_id String, rank UInt32)\nENGINE = ReplacingMergeTree(rank)\nORDER BY rank",
        cluster="c", database="d",
    )  # fmt: skip
    path = "'/clickhouse/tables/{shard}/{database}/t_local', '{shard}-{replica}'"
    assert local.endswith(f"ENGINE = ReplicatedReplacingMergeTree({path}, rank)\nORDER BY rank")


@pytest.mark.clickhouse
def test_servers_too_old_for_it_are_no_cluster(clickhouse_server: ClickHouseServer) -> None:
    open_store(clickhouse_server.url("old")).close()
    with pytest.raises(UsageError, match="23 or newer"):
        open_store(f"{clickhouse_server.url('old')}?cluster=one")
