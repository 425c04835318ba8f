"""What every store guarantees besides its answers: atomic inserts, reconnection and clear errors."""

import threading
from pathlib import Path

import pytest
from clickhouse_driver import Client
from clickhouse_driver.compression.lz4 import Compressor

from telemetry.errors import UnreachableError, UsageError
from telemetry.stores import driver
from telemetry.stores.address import Host, parse_address, without_password
from telemetry.stores.clickhouse import INSERT_MARK, ClickHouseStore
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import Store
from telemetry.stores.migrations import SCHEMA
from telemetry.stores.open import open_store
from telemetry.stores.queries import Runs
from telemetry.wire.client import CollectorClient
from tests.clickhouse_server import PASSWORD, USER, ClickHouseServer, running_server
from tests.deadline import until
from tests.each_case import each_case
from tests.forkserver import Program
from tests.telemetry.made_rows import insert, made, numbered_spans

MANY = 400_000


def count(store: Store) -> int:
    number: int = store.query("SELECT count() AS n FROM spans")["n"][0].as_py()
    return number


def test_large_insert_is_stored_as_one_part(store: Store) -> None:
    insert(store, "spans", numbered_spans(0, MANY))
    parts = store.query(
        "SELECT rows FROM system.parts WHERE table = 'spans' AND active AND database = currentDatabase()"
    )
    assert parts["rows"].to_pylist() == [MANY]


def test_second_migration_changes_nothing(store: Store) -> None:
    insert(store, "spans", numbered_spans(0, 5))
    store.migrate()
    assert count(store) == 5
    scripts = sorted(int(path.name[:4]) for path in SCHEMA.glob("[0-9]*.sql"))
    assert sorted(store.query("SELECT number FROM migrations WHERE number > 0")["number"].to_pylist()) == scripts


def test_migration_killed_before_it_was_recorded_is_repeated(store: Store) -> None:
    insert(store, "spans", numbered_spans(0, 5))
    store._execute("DROP TABLE migrations")  # type: ignore[attr-defined]
    store.migrate()
    assert count(store) == 5


def test_slice_of_a_larger_table_is_stored_unchanged(store: Store) -> None:
    insert(store, "spans", numbered_spans(0, 100).slice(10, 20))
    stored = store.query("SELECT min(seq) AS low, max(seq) AS high, count() AS n FROM spans").to_pylist()
    assert stored == [{"low": 10, "high": 29, "n": 20}]


def test_threads_insert_and_query_concurrently(store: Store) -> None:
    threads = [
        threading.Thread(target=lambda first=first: (insert(store, "spans", numbered_spans(first, 50)), count(store)))
        for first in range(0, 600, 50)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert count(store) == 600


def test_invalid_query_raises_an_error_and_the_store_stays_usable(store: Store) -> None:
    with pytest.raises(UnreachableError, match="nonsense"):
        store.query("SELECT nonsense FROM spans")
    assert count(store) == 0


def test_stores_in_memory_share_nothing(embedded: EmbeddedStore) -> None:
    other = EmbeddedStore()
    other.migrate()
    insert(embedded, "spans", numbered_spans(0, 3))
    assert count(other) == 0
    other.close()
    assert count(embedded) == 3


def test_repeated_query_is_not_compiled(embedded: EmbeddedStore) -> None:
    def num_compiled() -> int:
        return int(
            embedded.query("SELECT sum(value) AS n FROM system.events WHERE event = 'CompileFunction'")["n"][0].as_py()
        )

    before = num_compiled()
    for _ in range(6):
        embedded.query("SELECT sum(number * 3 + number % 7 + intDiv(number, 11)) FROM numbers(1000)")
    assert num_compiled() == before


def test_current_engine_has_codecs_and_the_opentelemetry_view(embedded: EmbeddedStore) -> None:
    codec = embedded.query(
        "SELECT compression_codec AS codec FROM system.columns"
        " WHERE table = 'spans' AND name = 'duration_ns' AND database = currentDatabase()"
    )
    assert codec["codec"].to_pylist() == ["CODEC(T64, ZSTD(1))"]
    insert(embedded, "spans", numbered_spans(0, 1))
    (trace,) = embedded.query("SELECT SpanName, ServiceName, Duration, TraceId FROM otel_traces").to_pylist()
    assert (trace["SpanName"], trace["ServiceName"], trace["Duration"]) == ("forward-compute", "run", 1)
    assert len(trace["TraceId"]) == 32


# A process can open only one folder, so each of these tests opens it in a separate process.

KEEP = """
import signal, sys
from telemetry.stores.open import open_store
from tests.telemetry.made_rows import insert, numbered_spans
store = open_store("embedded:" + sys.argv[1])
insert(store, "spans", numbered_spans(0, 7))
print(store.query("SELECT count() AS n FROM spans")["n"][0].as_py(), flush=True)
signal.pause()
"""
TRY = """
import sys
from telemetry.errors import RankscopeError
from telemetry.stores.open import open_store
try:
    open_store("embedded:" + sys.argv[1])
except RankscopeError as error:
    print(error, file=sys.stderr)
    sys.exit(error.exit_status)
"""


def refusal(folder: Path, output: Path) -> tuple[int, str]:
    """Exit status and output of a process that opens the folder."""
    return Program(["-c", TRY, str(folder)], output).wait(60), output.read_text()


def keep_open(folder: Path, output: Path, printed: str) -> Program:
    """A process that has the folder open, after it printed this."""
    owner = Program(["-c", KEEP, str(folder)], output)
    until(lambda: output.exists() and output.read_text() == printed, what="the owner")
    return owner


def test_embedded_folder_has_one_owner_and_keeps_its_rows_when_the_owner_is_killed(tmp_path: Path) -> None:
    owner = keep_open(tmp_path / "store", tmp_path / "owner", "7\n")
    status, error = refusal(tmp_path / "store", tmp_path / "second")
    assert status == 3
    assert "hint: use the collector that holds it" in error
    owner.kill()
    owner.wait(60)
    next_owner = keep_open(tmp_path / "store", tmp_path / "next owner", "14\n")
    next_owner.kill()
    next_owner.wait(60)


def test_embedded_folder_that_cannot_be_created_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    status, error = refusal(tmp_path / "file" / "store", tmp_path / "output")
    assert status == 2
    assert "hint: use a writable folder" in error


@each_case(
    "url",
    ["", "postgres://host/db", "spans", "clickhouse:///database", "clickhouse://h:port/db", "clickhouse://[::1"],
)  # fmt: skip
def test_invalid_store_address_is_refused_with_the_valid_forms(url: str) -> None:
    with pytest.raises(UsageError, match="clickhouse://user:password@host"):
        open_store(url)


def test_store_address_has_a_default_port_and_database_and_hides_its_password() -> None:
    address = parse_address("clickhouse://scope:p%40ss@db.example")
    assert (address.user, address.password, address.database) == ("scope", "p@ss", "rankscope")
    assert address.hosts == (Host(name="db.example", port=9000),)
    assert "p@ss" not in str(address)


@each_case(
    "url", ["postgres://me:s3cret@host/db", "me:s3cret@host", "clickhouse://me:s3cret@host/a-b",
            "clickhouse://me:s3cret", "clickhouse://me:s3@cret@host:port/db", "http://me:s3cret@"]
)  # fmt: skip
def test_error_about_a_store_address_does_not_contain_the_password(url: str) -> None:
    with pytest.raises(UsageError) as refused:
        open_store(url)
    assert "cret" not in str(refused.value)


def test_store_address_is_printed_completely_except_for_its_password() -> None:
    assert without_password("clickhouse://me:a://b@c@host:9000/db") == "clickhouse://me@host:9000/db"
    for plain in ("embedded:/data/a@b", "http://127.0.0.1:8719", "clickhouse://me@host/db"):
        assert without_password(plain) == plain


def test_errors_of_the_collector_client_do_not_contain_the_password() -> None:
    with CollectorClient("http://me:s3cret@127.0.0.1:1") as client, pytest.raises(UnreachableError) as unanswered:
        client.read(Runs())
    with pytest.raises(UsageError) as refused:
        CollectorClient("http://me:s3cret@")
    for error in (unanswered.value, refused.value):
        assert "me@" in str(error)
        assert "s3cret" not in str(error)


def test_opening_a_store_without_a_server_raises_an_error_with_a_hint() -> None:
    with pytest.raises(UnreachableError, match="hint: check that the server runs"):
        open_store("clickhouse://127.0.0.1:1/database")


@pytest.mark.clickhouse
def test_wrong_password_raises_an_error_with_a_hint(clickhouse_server: ClickHouseServer) -> None:
    with pytest.raises(UnreachableError, match="hint: check user and password"):
        open_store(f"clickhouse://{USER}:wrong@127.0.0.1:{clickhouse_server.port}/database")


@pytest.mark.clickhouse
def test_store_reconnects_after_its_server_was_killed_and_restarted() -> None:
    with running_server() as server:
        store = open_store(server.url("again"))
        insert(store, "spans", numbered_spans(0, 10))
        server.kill()
        with pytest.raises(UnreachableError):
            count(store)
        with pytest.raises(UnreachableError):
            insert(store, "spans", numbered_spans(10, 10))
        server.start()
        assert count(store) == 10
        insert(store, "spans", numbered_spans(10, 10))
        assert count(store) == 20
        store.close()


@pytest.mark.clickhouse
def test_compressed_rows_arrive_unchanged(clickhouse_server: ClickHouseServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """As between machines. On loopback, rows are not compressed."""
    monkeypatch.setattr(driver, "is_loopback", lambda _: False)
    packed: list[int] = []
    pack = Compressor.compress_data
    monkeypatch.setattr(Compressor, "compress_data", lambda self, data: packed.append(len(data)) or pack(self, data))
    store = open_store(clickhouse_server.url("packed"))
    spans = numbered_spans(0, MANY)
    marks = made("marks", ({"seq": seq, "name": "note", "text": "ä" * seq} for seq in range(300)))
    for table, rows in (("spans", spans), ("marks", marks)):
        insert(store, table, rows)
        stored = store.query(f"SELECT {', '.join(rows.column_names)} FROM {table} ORDER BY seq")
        assert stored.cast(rows.schema).equals(rows)
    assert sum(packed) > spans.nbytes
    store.close()


@pytest.mark.clickhouse
def test_query_waits_until_a_running_insert_of_a_killed_collector_ends(clickhouse_server: ClickHouseServer) -> None:
    """A collector killed during an insert leaves it running. Its rows can appear at any moment."""
    open_store(clickhouse_server.url("stray")).close()
    stray = Client("127.0.0.1", port=clickhouse_server.port, user=USER, password=PASSWORD, database="stray")
    stray.connection.connect()
    stray.connection.send_query("INSERT INTO spans (seq) VALUES", query_id=f"{INSERT_MARK}stray-1")
    stray.connection.send_external_tables(None)
    stray.receive_sample_block()
    store = ClickHouseStore(parse_address(clickhouse_server.url("stray")))
    answered = threading.Event()
    asker = threading.Thread(target=lambda: (count(store), answered.set()))
    asker.start()
    assert not answered.wait(0.5)
    stray.disconnect()
    until(answered.is_set, what="the answer once the insert has ended")
    asker.join()
    store.close()
