"""Ranks and collector are killed, and the agent gives up. The next agent stores every record of their files once.

For other failures of any part at any moment, see ``chaos``.
"""

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from telemetry.errors import RankscopeError
from telemetry.stores.queries import HighWater
from telemetry.wire.client import CollectorClient
from tests.deadline import until
from tests.integration.counted import records_written, rows_stored
from tests.integration.processes import Road, road
from tests.integration.writer import RUN

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(240)]

ATTEMPT: dict[str, Any] = {"run_id": RUN, "attempt": 0}
NUM_RANKS = 2


def wait_for_progress(road: Road) -> None:
    """Wait until the collector has stored more records of every rank."""
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


def test_agent_without_a_collector_keeps_the_files_for_the_next_agent(tmp_path: Path) -> None:
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
    stored = rows_stored(url)
    assert [row["stored"] for row in stored] == written
    assert [row["different"] for row in stored] == written
