"""The store hangs. Batches are refused, memory stays bounded, and no row is lost or stored twice."""

import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from telemetry.stores.open import open_store
from telemetry.wire.codec import ARROW_TYPE, encode, labelled
from tests.clickhouse_server import ClickHouseServer
from tests.deadline import until
from tests.integration.processes import COLLECT, Part, free_port
from tests.telemetry.made_rows import numbered_spans

pytestmark = [pytest.mark.clickhouse, pytest.mark.chaos, pytest.mark.timeout(240)]

NUM_AGENTS = 8
ROWS_A_BATCH = 20_000
QUEUE_BYTES = 16 * 2**20
GROWTH_BYTES = 128 * 2**20
"""Most growth of the collector while the store hangs: the queue, the running insert and its copies."""
PATIENCE_S = 1.0
REFUSALS = 40


@contextmanager
def collecting(store_url: str, folder: Path) -> Iterator[tuple[Part, str]]:
    port = free_port()
    part = Part("collector", [sys.executable, "-c", COLLECT, store_url, str(port)], folder / "collector.log")
    url = f"http://127.0.0.1:{port}"
    part.start()
    try:
        until(lambda: _is_healthy(url) or not part.running, what="the collector")
        assert part.running, part.said()
        yield part, url
    finally:
        part.kill()


@contextmanager
def standing_still(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


class HastyAgent(threading.Thread):
    """Sends one batch after the other. It waits a short time, then sends the batch again at once, even if refused."""

    def __init__(self, rank: int, url: str) -> None:
        super().__init__(name=f"agent-{rank}")
        self._rank = rank
        self._url = url
        self.told_to_end = threading.Event()
        self.acked = 0
        self.refused = 0

    def run(self) -> None:
        with httpx.Client(base_url=self._url, timeout=PATIENCE_S, verify=False) as http:
            while not self.told_to_end.is_set():
                rows = numbered_spans(self.acked, ROWS_A_BATCH, rank=self._rank)
                body = encode(labelled(rows, "run", 0))
                until(lambda body=body: self._sent(http, body), seconds=120, what="a batch that is stored")
                self.acked += ROWS_A_BATCH

    def _sent(self, http: httpx.Client, body: bytes) -> bool:
        try:
            answer = http.post("/v1/batches/spans", content=body, headers={"Content-Type": ARROW_TYPE})
        except httpx.HTTPError:
            return False
        assert answer.is_success or (answer.status_code in (429, 503) and answer.headers["retry-after"].isdecimal())
        self.refused += answer.status_code == 429
        return answer.is_success


def test_collector_refuses_batches_and_uses_bounded_memory_while_the_store_hangs(
    clickhouse_server: ClickHouseServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANKSCOPE_QUEUE_BYTES", str(QUEUE_BYTES))
    with collecting(clickhouse_server.url("slow"), tmp_path) as (collector, url):
        agents = [HastyAgent(rank, url) for rank in range(NUM_AGENTS)]
        for agent in agents:
            agent.start()
        until(lambda: all(agent.acked for agent in agents), what="rows of every agent")
        before = _memory_bytes(collector.pid)
        with standing_still(clickhouse_server.pid):
            until(lambda: sum(agent.refused for agent in agents) >= REFUSALS, seconds=60, what="agents sent away")
            during = _memory_bytes(collector.pid)
        for agent in agents:
            agent.told_to_end.set()
        for agent in agents:
            agent.join()
        assert collector.end(60) == 0, collector.said()
    assert during - before < GROWTH_BYTES
    assert _rows_of(clickhouse_server) == [(agent.acked, agent.acked) for agent in agents]


def _rows_of(server: ClickHouseServer) -> list[tuple[int, int]]:
    """Number of rows and number of different rows, by rank."""
    store = open_store(server.url("slow"))
    try:
        rows = store.query(
            "SELECT count() AS stored, uniqExact(seq) AS different FROM spans GROUP BY rank ORDER BY rank"
        )
    finally:
        store.close()
    return list(zip(rows["stored"].to_pylist(), rows["different"].to_pylist(), strict=True))


def _memory_bytes(pid: int) -> int:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) * 1024


def _is_healthy(url: str) -> bool:
    try:
        return httpx.get(f"{url}/healthz", timeout=PATIENCE_S, verify=False).is_success
    except httpx.HTTPError:
        return False
