"""Two collectors use one server. Agents send to either one, and each can be killed or paused at any moment."""

import itertools
import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from telemetry.collector.counters import Counters
from telemetry.collector.writer import Outcome, RowWriter
from telemetry.errors import UnreachableError
from telemetry.stores.interface import Store, StoreReader
from telemetry.stores.open import open_store
from telemetry.stores.queries.claims import NUMBER_BITS
from telemetry.wire.codec import ARROW_TYPE, Ack, Batch, encode, labelled
from tests.clickhouse_server import ClickHouseServer
from tests.deadline import until
from tests.integration.processes import COLLECT, Part, free_port
from tests.telemetry.made_rows import numbered_spans

pytestmark = [pytest.mark.clickhouse, pytest.mark.chaos, pytest.mark.timeout(240)]

NUM_AGENTS = 4
ROUNDS = 4
PATIENCE_S = 2.0
_numbers = itertools.count(1)


@pytest.fixture
def url(clickhouse_server: ClickHouseServer) -> str:
    return clickhouse_server.url(f"two_collectors_{next(_numbers)}")


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    opened = open_store(url)
    yield opened
    opened.close()


@pytest.fixture
def another_store(url: str) -> Iterator[Store]:
    """A second store of the same database, as another process has."""
    opened = open_store(url)
    yield opened
    opened.close()


@contextmanager
def two_collectors(store_url: str, folder: Path) -> Iterator[list[tuple[Part, str]]]:
    """Two collectors with their addresses."""
    with ExitStack() as cleanup:
        made = []
        for number in range(2):
            port = free_port()
            command = [sys.executable, "-c", COLLECT, store_url, str(port)]
            part = Part(f"collector-{number}", command, folder / f"collector-{number}.log")
            cleanup.callback(part.kill)
            part.start()
            made.append((part, f"http://127.0.0.1:{port}"))
        wait_for(made)
        yield made


def wait_for(collectors: list[tuple[Part, str]]) -> None:
    """Wait until each collector answers. Before that, SIGTERM kills it without a clean shutdown."""
    for part, url in collectors:
        until(lambda part=part, url=url: answers(url) or not part.running, what="a collector")
        assert part.running, part.said()


def answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/healthz", timeout=PATIENCE_S, verify=False).is_success
    except httpx.HTTPError:
        return False


@contextmanager
def standing_still(part: Part) -> Iterator[None]:
    """SIGSTOP for the block. Connections stay open without any answer."""
    os.kill(part.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(part.pid, signal.SIGCONT)


class ImpatientAgent(threading.Thread):
    """Sends the rows of one rank in order, each batch to a collector of its choice until it is stored."""

    def __init__(self, rank: int, urls: list[str]) -> None:
        super().__init__(name=f"agent-{rank}")
        self.rank = rank
        self._urls = urls
        self._chance = random.Random(rank)
        self.told_to_end = threading.Event()
        self.acked = 0

    def run(self) -> None:
        with httpx.Client(timeout=PATIENCE_S, verify=False) as http:
            while not self.told_to_end.is_set():
                count = self._chance.randint(1, 600)
                rows = numbered_spans(self.acked, count, rank=self.rank)
                until(lambda rows=rows: self._sent(http, rows), seconds=60, what="a batch that is stored")
                self.acked += count

    def _sent(self, http: httpx.Client, rows: pa.Table) -> bool:
        url = f"{self._chance.choice(self._urls)}/v1/batches/spans"
        try:
            answer = http.post(url, content=encode(labelled(rows, "run", 0)), headers={"Content-Type": ARROW_TYPE})
        except httpx.HTTPError:
            return False
        assert answer.status_code in (200, 429, 503), answer.text
        return answer.is_success


def test_two_collectors_killed_and_paused_store_each_row_once(url: str, store: Store, tmp_path: Path) -> None:
    chance = random.Random(11)
    pause = threading.Event()
    with two_collectors(url, tmp_path) as collectors:
        agents = [ImpatientAgent(rank, [url for _, url in collectors]) for rank in range(NUM_AGENTS)]
        for agent in agents:
            agent.start()
        for _ in range(ROUNDS):
            pause.wait(chance.uniform(0.1, 0.6))
            victim, _ = chance.choice(collectors)
            if chance.random() < 0.5:
                with standing_still(victim):
                    pause.wait(chance.uniform(0.2, 2.5))
            else:
                victim.kill()
                victim.start()
        for agent in agents:
            agent.told_to_end.set()
        for agent in agents:
            agent.join()
        wait_for(collectors)
        assert [part.end() for part, _ in collectors] == [0, 0]
    answer = store.query(
        "SELECT rank, count() AS stored, uniqExact(seq) AS different, max(seq) + 1 AS end FROM spans"
        " GROUP BY rank ORDER BY rank"
    )
    assert answer.to_pylist() == [
        {"rank": agent.rank, "stored": agent.acked, "different": agent.acked, "end": agent.acked} for agent in agents
    ]
    assert min(agent.acked for agent in agents) > 0


class HeldStore:
    """A store whose inserts of spans wait for a gate, before they are registered or after they are confirmed."""

    def __init__(self, store: Store, *, registered: bool) -> None:
        self._store = store
        self._registered = registered
        self.gate = threading.Event()
        self.gate.set()
        self.waiting = threading.Event()

    def insert(self, table: str, rows: pa.Table, *, confirm: Callable[[], None] | None = None) -> None:
        def confirm_and_wait() -> None:
            if confirm:
                confirm()
            if self._registered and table == "spans":
                self._wait()

        if not self._registered and table == "spans":
            self._wait()
        self._store.insert(table, rows, confirm=confirm_and_wait)

    def _wait(self) -> None:
        self.waiting.set()
        assert self.gate.wait(30)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def batch(first_seq: int, count: int = 10, *, rank: int = 0) -> Batch:
    return Batch(table="spans", run_id="held", attempt=0, rows=numbered_spans(first_seq, count, rank=rank))


def row_writer(store: Store) -> RowWriter:
    return RowWriter(store, StoreReader(store), Counters())


def times_stored(store: Store) -> list[int]:
    """Number of copies of each row of the run."""
    answer = store.query("SELECT seq, count() AS times FROM spans WHERE run_id = 'held' GROUP BY rank, seq")
    times: list[int] = answer["times"].to_pylist()
    return times


@contextmanager
def stalled(held: HeldStore, writer: RowWriter) -> Iterator[Future[list[Outcome]]]:
    """A writer that owns its rank is paused with rows 10 to 19, until the block ends or opens the gate."""
    assert writer.store("spans", [batch(0)]) == [Ack(rows=10, duplicates=0)]
    held.gate.clear()
    held.waiting.clear()
    with ThreadPoolExecutor(1) as threads:
        stored = threads.submit(writer.store, "spans", [batch(10)])
        try:
            assert held.waiting.wait(30)
            yield stored
        finally:
            held.gate.set()


def test_writer_paused_before_its_insert_stores_nothing_after_another_claimed_the_rank(
    store: Store, another_store: Store
) -> None:
    held = HeldStore(store, registered=False)
    with stalled(held, row_writer(held)) as stored:
        assert row_writer(another_store).store("spans", [batch(5, 15)]) == [Ack(rows=10, duplicates=5)]
    assert isinstance(stored.result()[0], UnreachableError)
    assert times_stored(store) == [1] * 20


def test_claim_of_a_rank_waits_for_an_insert_that_was_confirmed_before(store: Store, another_store: Store) -> None:
    held = HeldStore(store, registered=True)
    other = row_writer(another_store)
    with stalled(held, row_writer(held)) as stored, ThreadPoolExecutor(1) as threads:
        claimed = threads.submit(other.store, "spans", [batch(5, 20)])
        until(lambda: num_claims(store) > 1, what="the other's claim")
        held.gate.set()
        assert stored.result() == [Ack(rows=10, duplicates=0)]
        assert claimed.result() == [Ack(rows=5, duplicates=15)]
    assert times_stored(store) == [1] * 25


def num_claims(store: Store) -> int:
    """Number of claims of the run so far, from the rounds of their ballots."""
    newest = store.query("SELECT max(ballot) AS newest FROM claims WHERE run_id = 'held'")["newest"][0].as_py()
    return int(newest) >> NUMBER_BITS


def test_writer_that_lost_a_rank_raises_once_and_stores_the_batch_that_is_sent_again(
    store: Store, another_store: Store
) -> None:
    one, other = row_writer(store), row_writer(another_store)
    lost, kept = batch(20), batch(0, rank=1)
    assert one.store("spans", [batch(0)]) == other.store("spans", [batch(10)]) == [Ack(rows=10, duplicates=0)]
    refused, stored = one.store("spans", [lost, kept])
    assert isinstance(refused, UnreachableError)
    assert stored == Ack(rows=10, duplicates=0)
    assert one.store("spans", [lost]) == [Ack(rows=10, duplicates=0)]
    assert times_stored(store) == [1] * 40
