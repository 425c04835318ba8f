"""Retention: how long rows are kept if a limit is set."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from telemetry.collector.settings import CollectorSettings
from telemetry.errors import UsageError
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import Store
from telemetry.stores.open import MigratingStore, open_store
from telemetry.stores.retention import FINDINGS_TABLES, OTEL_TABLES, RAW_TABLES, Limits
from tests.clickhouse_server import ClickHouseServer
from tests.deadline import until
from tests.memory_store import memory_store
from tests.telemetry.made_rows import made, numbered_spans, owned

RAW_30 = Limits(raw_days=30)
LOG = set(FINDINGS_TABLES)
"""Tables that have a limit by default."""


@pytest.fixture
def embedded() -> Iterator[EmbeddedStore]:
    """A new store for each test, because the tests change its tables."""
    with memory_store() as store:
        yield store


def stored(rows: pa.Table, *, days_ago: int) -> pa.Table:
    """Rows as if they were stored ``days_ago``."""
    day = (datetime.now(UTC) - timedelta(days=days_ago)).date()
    return owned(rows).append_column("inserted_on", pa.array([day] * rows.num_rows, pa.date32()))


def count(store: Store, table: str = "spans") -> int:
    number: int = store.query(f"SELECT count() AS n FROM {table}")["n"][0].as_py()
    return number


def limits(store: MigratingStore) -> set[str]:
    sql = "SELECT name FROM system.tables WHERE database = currentDatabase() AND engine_full LIKE '% TTL %'"
    return set(store.query(sql)["name"].to_pylist())


def test_old_spans_are_deleted_and_new_spans_and_old_marks_are_kept(embedded: EmbeddedStore) -> None:
    embedded.insert("spans", stored(numbered_spans(0, 100), days_ago=90))
    embedded.insert("marks", stored(made("marks", [{"seq": 1}]), days_ago=90))
    embedded.insert("spans", stored(numbered_spans(100, 10), days_ago=0))
    embedded.migrate(limits=RAW_30)
    until(lambda: count(embedded) == 10, what="the end of the old part")
    assert count(embedded, "marks") == 1
    embedded.insert("spans", stored(numbered_spans(200, 5), days_ago=29))
    embedded.insert("spans", stored(numbered_spans(300, 5), days_ago=90))
    until(lambda: count(embedded) == 15, what="the end of what came in old")


def test_retention_limit_is_set_once_can_change_and_is_removed_by_zero(embedded: EmbeddedStore) -> None:
    raw = set(RAW_TABLES)
    assert {"spans", "samples", "host_samples", "otel_spans", "otel_logs"} < raw
    assert limits(embedded) == LOG
    embedded.migrate(limits=RAW_30)
    assert limits(embedded) == raw | LOG
    assert not any("TTL" in sql for sql in embedded.plan(limits=RAW_30))
    assert len([sql for sql in embedded.plan(limits=Limits(raw_days=60)) if "MODIFY TTL" in sql]) == len(raw)
    embedded.migrate()
    assert limits(embedded) == raw | LOG
    embedded.migrate(limits=Limits(raw_days=0))
    assert limits(embedded) == LOG


@pytest.mark.clickhouse
def test_retention_limit_on_a_server_that_is_too_old_raises_an_error(clickhouse_server: ClickHouseServer) -> None:
    url = clickhouse_server.url("kept")
    with pytest.raises(UsageError, match="RANKSCOPE_RETENTION_DAYS"):
        open_store(url, limits=RAW_30)
    with pytest.raises(UsageError, match="RANKSCOPE_FINDINGS_DAYS"):
        open_store(url, limits=Limits(findings_days=90))
    open_store(url, limits=Limits(raw_days=0)).close()


def test_collector_reads_its_retention_limit_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert CollectorSettings.checked().retention_days is None
    monkeypatch.setenv("RANKSCOPE_RETENTION_DAYS", "30")
    assert CollectorSettings.checked().retention_days == 30
    monkeypatch.setenv("RANKSCOPE_RETENTION_DAYS", "-1")
    with pytest.raises(UsageError, match="RANKSCOPE_RETENTION_DAYS"):
        CollectorSettings.checked()


def test_old_opentelemetry_logs_are_deleted(embedded: EmbeddedStore) -> None:
    for days_ago in (90, 0):
        embedded.database.execute(
            "INSERT INTO otel_logs (Body, inserted_on) SETTINGS insert_allow_materialized_columns = 1 "
            f"SELECT 'words', today() - {days_ago}"
        )
    embedded.migrate(limits=RAW_30)
    until(lambda: count(embedded, "otel_logs") == 1, what="the end of the old part")


def test_retention_skips_tables_that_an_old_database_does_not_have(embedded: EmbeddedStore) -> None:
    for table in OTEL_TABLES:
        embedded.database.execute(f"DROP TABLE {table}")
    embedded.migrate(limits=RAW_30)
    assert limits(embedded) == LOG | set(RAW_TABLES) - set(OTEL_TABLES)


def test_findings_are_kept_for_a_year_or_as_long_as_the_setting_says(embedded: EmbeddedStore) -> None:
    row = {"fingerprint": "ab" * 8, "raised_ns": 1, "state": "raised"}
    for days_ago in (400, 300):
        rows = made("findings", [{**row, "at_ns": days_ago}])
        embedded.insert("findings", stored(rows, days_ago=days_ago))
    until(lambda: count(embedded, "findings") == 1, what="the end of what is older than a year")
    embedded.migrate(limits=Limits(findings_days=90))
    until(lambda: count(embedded, "findings") == 0, what="the end of what is older than 90 days")
    embedded.migrate(limits=Limits(findings_days=0))
    assert limits(embedded) == set()
