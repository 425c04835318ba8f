"""How long rows are kept, where somebody said so."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from telemetry.collector.settings import CollectorSettings
from telemetry.errors import UsageError
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import Store
from telemetry.stores.open import MigratingStore, open_store
from telemetry.stores.retention import OTEL_TABLES, RAW_TABLES
from tests.clickhouse_server import ClickHouseServer
from tests.deadline import until
from tests.memory_store import memory_store
from tests.telemetry.made_rows import made, numbered_spans, owned


@pytest.fixture
def embedded() -> Iterator[EmbeddedStore]:
    """One for each test: they change its tables."""
    with memory_store() as store:
        yield store


def stored(rows: pa.Table, *, days_ago: int) -> pa.Table:
    """As if it had been stored then."""
    day = (datetime.now(UTC) - timedelta(days=days_ago)).date()
    return owned(rows).append_column("inserted_on", pa.array([day] * rows.num_rows, pa.date32()))


def count(store: Store, table: str = "spans") -> int:
    number: int = store.query(f"SELECT count() AS n FROM {table}")["n"][0].as_py()
    return number


def limits(store: MigratingStore) -> set[str]:
    sql = "SELECT name FROM system.tables WHERE database = currentDatabase() AND engine_full LIKE '% TTL %'"
    return set(store.query(sql)["name"].to_pylist())


def test_old_spans_go_new_ones_and_what_is_small_stay(embedded: EmbeddedStore) -> None:
    embedded.insert("spans", stored(numbered_spans(0, 100), days_ago=90))
    embedded.insert("marks", stored(made("marks", [{"seq": 1}]), days_ago=90))
    embedded.insert("spans", stored(numbered_spans(100, 10), days_ago=0))
    embedded.migrate(retention_days=30)
    until(lambda: count(embedded) == 10, what="the end of the old part")
    assert count(embedded, "marks") == 1
    embedded.insert("spans", stored(numbered_spans(200, 5), days_ago=29))
    embedded.insert("spans", stored(numbered_spans(300, 5), days_ago=90))
    until(lambda: count(embedded) == 15, what="the end of what came in old")


def test_a_limit_is_set_once_may_change_and_goes_when_it_is_zero(embedded: EmbeddedStore) -> None:
    raw = set(RAW_TABLES)
    assert {"spans", "samples", "host_samples", "otel_spans", "otel_logs"} < raw
    assert limits(embedded) == set()
    embedded.migrate(retention_days=30)
    assert limits(embedded) == raw
    assert not any("TTL" in sql for sql in embedded.plan(retention_days=30))
    assert len([sql for sql in embedded.plan(retention_days=60) if "MODIFY TTL" in sql]) == len(raw)
    embedded.migrate()
    assert limits(embedded) == raw
    embedded.migrate(retention_days=0)
    assert limits(embedded) == set()


@pytest.mark.clickhouse
def test_a_server_too_old_for_limits_is_an_error_not_a_promise(clickhouse_server: ClickHouseServer) -> None:
    url = clickhouse_server.url("kept")
    with pytest.raises(UsageError, match="RANKSCOPE_RETENTION_DAYS"):
        open_store(url, retention_days=30)
    open_store(url, retention_days=0).close()


def test_a_collector_is_told_by_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert CollectorSettings.checked().retention_days is None
    monkeypatch.setenv("RANKSCOPE_RETENTION_DAYS", "30")
    assert CollectorSettings.checked().retention_days == 30
    monkeypatch.setenv("RANKSCOPE_RETENTION_DAYS", "-1")
    with pytest.raises(UsageError, match="RANKSCOPE_RETENTION_DAYS"):
        CollectorSettings.checked()


def test_what_came_by_opentelemetry_goes_too(embedded: EmbeddedStore) -> None:
    for days_ago in (90, 0):
        embedded.database.execute(
            "INSERT INTO otel_logs (Body, inserted_on) SETTINGS insert_allow_materialized_columns = 1 "
            f"SELECT 'words', today() - {days_ago}"
        )
    embedded.migrate(retention_days=30)
    until(lambda: count(embedded, "otel_logs") == 1, what="the end of the old part")


def test_tables_that_an_old_database_does_not_have_need_no_limit(embedded: EmbeddedStore) -> None:
    for table in OTEL_TABLES:
        embedded.database.execute(f"DROP TABLE {table}")
    embedded.migrate(retention_days=30)
    assert limits(embedded) == set(RAW_TABLES) - set(OTEL_TABLES)
