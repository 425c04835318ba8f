"""Between the registration of an insert and its rows: who may stop it, and who waits for it."""

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
    """What a collector raises that finds a rank to be another's."""


def count(store: Store) -> int:
    number: int = store.query("SELECT count() AS n FROM spans")["n"][0].as_py()
    return number


def refuse() -> None:
    raise Taken


def running(store: Store) -> int:
    """Inserts that the server works on now."""
    sql = f"SELECT count() AS n FROM system.processes WHERE startsWith(query_id, '{INSERT_MARK}')"
    number: int = store.query(sql)["n"][0].as_py()
    return number


def test_rows_are_stored_when_the_insert_is_confirmed(store: Store) -> None:
    asked = []
    store.insert("spans", owned(numbered_spans(0, 5)), confirm=lambda: asked.append(count(store)))
    assert asked == [0]
    assert count(store) == 5


def test_nothing_is_stored_when_it_is_not_confirmed_and_the_reason_comes_through(store: Store) -> None:
    with pytest.raises(Taken):
        store.insert("spans", owned(numbered_spans(0, 50_000)), confirm=refuse)
    store.settle()
    assert count(store) == 0
    store.insert("spans", owned(numbered_spans(0, 5)))
    assert count(store) == 5


def test_an_insert_may_be_confirmed_by_a_question_right_after_another_broke_off(store: Store) -> None:
    """The question must not wait for the very insert that waits for it."""

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
    """An insert that waits at its confirmation until it is let go."""

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
    """The same database, as another process sees it; of the embedded one there is but this."""
    if not isinstance(store, ClickHouseStore):
        yield store
        return
    server: ClickHouseServer = request.getfixturevalue("clickhouse_server")
    other = ClickHouseStore(parse_address(server.url(store.database.name)))
    # What ran before its time is waited for at its first question, whoever settles.
    assert count(other) == 0
    yield other
    other.close()


def test_whoever_settles_waits_for_the_inserts_that_were_registered_before(store: Store, another: Store) -> None:
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


def test_an_insert_that_does_not_end_is_an_error_not_a_wait_for_ever(
    store: Store, another: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inserts, "SETTLE_S", 0.2)
    held = Held(store)
    with pytest.raises(UnreachableError, match="still runs"):
        another.settle()
    held.finish()


@pytest.mark.clickhouse
def test_an_insert_is_known_to_its_server_before_it_is_confirmed_and_gone_when_it_is_not(on_server: Store) -> None:
    def refuse_having_looked() -> None:
        assert running(on_server) == 1
        raise Taken

    with pytest.raises(Taken):
        on_server.insert("spans", owned(numbered_spans(0, 50_000)), confirm=refuse_having_looked)
    until(lambda: not running(on_server), what="the end of the insert")
    assert count(on_server) == 0
