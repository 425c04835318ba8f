"""Every span that was recorded is stored, and none twice, whichever process is killed at whichever moment.

Each record of a rank has a number, counted without gaps, so what must be stored can be counted from the rank file.
"""

import json
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from telemetry.errors import RankscopeError
from telemetry.record.reader import RankReader, find_rank_dirs
from telemetry.ship.client import CollectorClient
from telemetry.stores.queries import Heartbeats, HighWater, Ranks
from tests.clickhouse_server import ClickHouseServer, running_server
from tests.deadline import until
from tests.integration.processes import Road, road
from tests.integration.writer import RUN

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(240)]

ATTEMPT: dict[str, Any] = {"run_id": RUN, "attempt": 0}
NUM_RANKS = 2
KILLS = 12


@pytest.fixture(params=["embedded", pytest.param("clickhouse", marks=pytest.mark.clickhouse)])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "embedded":
        yield f"embedded:{tmp_path / 'store'}"
        return
    server: ClickHouseServer = request.getfixturevalue("clickhouse_server")
    yield server.url(f"chaos_{random.randrange(10**9)}")


COUNT = """
import json, sys
from telemetry.stores.open import open_store
store = open_store(sys.argv[1])
rows = store.query(
    "SELECT rank, count() AS stored, uniqExact(seq) AS different, min(seq) AS first, max(seq) AS last FROM"
    " (SELECT rank, seq FROM spans UNION ALL SELECT rank, seq FROM samples) GROUP BY rank ORDER BY rank"
)
print(json.dumps(rows.to_pylist()))
store.close()
"""


def rows_stored(store_url: str) -> list[dict[str, int]]:
    """By rank, counted in the store itself, in a process of its own. Spans and samples are numbered together."""
    told = subprocess.run(
        [sys.executable, "-c", COUNT, store_url], capture_output=True, text=True, check=True, timeout=60
    )
    rows: list[dict[str, int]] = json.loads(told.stdout)
    return rows


def records_written(spool: Path) -> list[int]:
    """By rank, counted in its files."""
    readers = [RankReader(folder) for folder in find_rank_dirs(spool)]
    return [reader.end_seq(reader.acked()) for reader in readers]


def pids_recording(spool: Path) -> list[int]:
    """By rank, who writes its files: a rank that was started again needs a moment."""
    return [RankReader(folder).live().pid for folder in find_rank_dirs(spool)]


def wait_for_progress(road: Road) -> None:
    """Until the collector has stored more of every rank."""
    with CollectorClient(road.url) as client:

        def stored() -> dict[int, int]:
            with suppress(RankscopeError):
                marks = client.read(HighWater(**ATTEMPT, table="spans"))
                return dict(zip(marks["rank"].to_pylist(), marks["next_seq"].to_pylist(), strict=True))
            return {}

        until(lambda: len(stored()) == NUM_RANKS, what="every rank in the store")
        before = stored()
        until(
            lambda: all(now > before[rank] for rank, now in stored().items()) and stored(),
            what="progress of every rank",
        )


def finish(road: Road, store_url: str) -> None:
    """End the ranks in order, let an agent ship the rest, and count: what was written is stored, once."""
    until(lambda: pids_recording(road.spool) == [rank.pid for rank in road.ranks], what="every rank at work")
    for rank in road.ranks:
        assert rank.end() == 0, rank.said()
    if not road.agent.running:
        road.agent.start()
    assert road.agent.wait(60) == 0, road.agent.said()
    with CollectorClient(road.url) as client:
        assert client.read(Ranks(**ATTEMPT)).num_rows == NUM_RANKS
        assert client.read(Heartbeats(**ATTEMPT))["ended"].to_pylist() == [1] * NUM_RANKS
    assert road.collector.end() == 0, road.collector.said()
    expected = [
        {"rank": rank, "stored": written, "different": written, "first": 0, "last": written - 1}
        for rank, written in enumerate(records_written(road.spool))
    ]
    assert rows_stored(store_url) == expected
    assert min(row["stored"] for row in expected) > 1000


def test_killed_at_random_moments_nothing_is_lost_and_nothing_doubled(tmp_path: Path, store_url: str) -> None:
    chance = random.Random(7)
    pause = threading.Event()
    with road(tmp_path, store_url, num_ranks=NUM_RANKS) as running:
        for _ in range(KILLS):
            pause.wait(chance.uniform(0.1, 0.8))
            victim = chance.choice([running.collector, running.agent, *running.ranks])
            victim.kill()
            pause.wait(chance.uniform(0.0, 0.3))
            if victim is running.collector:
                running.start_collector()
            else:
                victim.start()
        if not running.agent.running:
            running.agent.start()
        wait_for_progress(running)
        finish(running, store_url)


def test_records_wait_in_the_files_while_the_collector_is_away(tmp_path: Path, store_url: str) -> None:
    pause = threading.Event()
    with road(tmp_path, store_url, num_ranks=NUM_RANKS) as running:
        wait_for_progress(running)
        running.collector.kill()
        pause.wait(3)
        assert running.agent.running
        running.start_collector()
        wait_for_progress(running)
        finish(running, store_url)


@pytest.mark.clickhouse
def test_a_server_killed_under_the_collector_loses_nothing(tmp_path: Path) -> None:
    pause = threading.Event()
    with running_server() as server:
        url = server.url("chaos")
        with road(tmp_path, url, num_ranks=NUM_RANKS) as running:
            for _ in range(3):
                wait_for_progress(running)
                server.kill()
                pause.wait(0.5)
                server.start()
            wait_for_progress(running)
            finish(running, url)


def test_an_agent_without_a_collector_leaves_the_files_for_the_next_one(tmp_path: Path) -> None:
    url = f"embedded:{tmp_path / 'store'}"
    with road(tmp_path, url, num_ranks=NUM_RANKS) as running:
        wait_for_progress(running)
        running.collector.kill()
        for rank in running.ranks:
            rank.kill()
        written = records_written(running.spool)
        assert running.agent.wait(30) == 3
        assert "hint: start one with `rankscope collect`" in running.agent.said()
        running.start_collector()
        running.agent.start()
        assert running.agent.wait(30) == 0, running.agent.said()
        assert running.collector.end() == 0
    assert [row["stored"] for row in rows_stored(url)] == written
    assert [row["different"] for row in rows_stored(url)] == written
