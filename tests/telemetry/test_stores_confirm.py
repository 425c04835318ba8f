"""The confirm callback runs after an insert is registered and can stop it. ``settle`` waits for inserts."""

import threading
from collections.abc import Iterator

import pytest

from telemetry.errors import UnreachableError
from telemetry.stores import inserts
from telemetry.stores.address import parse_address
from telemetry.stores.clickhouse import ClickHouseStore
from telemetry.stores.inserts import INSERT_MARK
from telemetry.stores.interface import Store
from tests.clickhouse_server import ClickHouseServer
from tests.deadline import until
from tests.telemetry.made_rows import numbered_spans, owned


class Taken(Exception):
    """A collector raises this if it finds that another collector owns the rank."""


def count(store: Store) -> int:
    number: int = store.query("SELECT count() AS n FROM spans")["n"][0].as_py()
    return number


def refuse() -> None:
    raise Taken


def running(store: Store) -> int:
    """Number of inserts that the server executes now."""
    sql = f"SELECT count() AS n FROM system.processes WHERE startsWith(query_id, '{INSERT_MARK}')"
    number: int = store.query(sql)["n"][0].as_py()
    return number


def test_rows_are_stored_when_the_insert_is_confirmed(store: Store) -> None:
    asked = []
    store.insert("spans", owned(numbered_spans(0, 5)), confirm=lambda: asked.append(count(store)))
    assert asked == [0]
    assert count(store) == 5


def test_insert_stores_nothing_and_raises_the_error_of_its_confirm_callback(store: Store) -> None:
    with pytest.raises(Taken):
        store.insert("spans", owned(numbered_spans(0, 50_000)), confirm=refuse)
    store.settle()
    assert count(store) == 0
    store.insert("spans", owned(numbered_spans(0, 5)))
    assert count(store) == 5


def test_confirm_callback_can_query_the_store_right_after_another_insert_failed(store: Store) -> None:
    """The query must not wait for the insert whose callback sends it."""

    def break_one_off() -> None:
        with pytest.raises(Taken):
            store.insert("spans", owned(numbered_spans(5, 5)), confirm=refuse)

    def confirm() -> None:
        breaker = threading.Thread(target=break_one_off)
        breaker.start()
        breaker.join()
        assert count(store) == 0

    store.insert("spans", owned(numbered_spans(0, 5)), confirm=confirm)
    assert count(store) == 5


class Held:
    """An insert whose confirm callback blocks until ``finish`` is called."""

    def __init__(self, store: Store) -> None:
        self.registered, self.let_go = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._insert, args=(store,))
        self._thread.start()
        assert self.registered.wait(30)

    def _insert(self, store: Store) -> None:
        store.insert("spans", owned(numbered_spans(0, 5)), confirm=self._wait)

    def _wait(self) -> None:
        self.registered.set()
        assert self.let_go.wait(30)

    def finish(self) -> None:
        self.let_go.set()
        self._thread.join()


@pytest.fixture
def another(request: pytest.FixtureRequest, store: Store) -> Iterator[Store]:
    """The same database, as another process sees it. For the embedded engine it is the same store."""
    if not isinstance(store, ClickHouseStore):
        yield store
        return
    server: ClickHouseServer = request.getfixturevalue("clickhouse_server")
    other = ClickHouseStore(parse_address(server.url(store.database.name)))
    # The first query of a store waits for running inserts. Do it now, before an insert is held.
    assert count(other) == 0
    yield other
    other.close()


def test_settle_waits_for_inserts_that_were_registered_before(store: Store, another: Store) -> None:
    held, settled = Held(store), threading.Event()
    seen: list[int] = []

    def settle() -> None:
        another.settle()
        seen.append(count(another))
        settled.set()

    settler = threading.Thread(target=settle)
    settler.start()
    assert not settled.wait(0.3)
    held.finish()
    settler.join()
    assert seen == [5]


def test_settle_raises_an_error_if_an_insert_does_not_end_in_time(
    store: Store, another: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inserts, "SETTLE_S", 0.2)
    held = Held(store)
    with pytest.raises(UnreachableError, match="still runs"):
        another.settle()
    held.finish()


@pytest.mark.clickhouse
def test_insert_runs_on_its_server_before_confirm_and_ends_when_confirm_raises(on_server: Store) -> None:
    def refuse_having_looked() -> None:
        assert running(on_server) == 1
        raise Taken

    with pytest.raises(Taken):
        on_server.insert("spans", owned(numbered_spans(0, 50_000)), confirm=refuse_having_looked)
    until(lambda: not running(on_server), what="the end of the insert")
    assert count(on_server) == 0
