"""A store is backed up while a run is recorded, lost, and restored. Its answers are the same, and the run continues.

fill -> ranks, agent, collector -> back up -> more records -> kill the collector, lose the store -> restore
                                                                 -> collector again -> more records -> count
"""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from clickhouse_driver import Client

from telemetry.record.reader import RankReader, find_rank_dirs
from telemetry.stores.open import open_store
from tests.clickhouse_server import PASSWORD, USER, ClickHouseServer
from tests.deadline import until
from tests.forkserver import output_of
from tests.integration.backed_up import NUM_RANKS, ROWS, Copies, Frozen
from tests.integration.counted import records_written
from tests.integration.processes import Road, road

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(240)]


def run(what: str, where: str) -> Any:
    """The JSON that ``backed_up`` prints."""
    return json.loads(output_of("-m", "tests.integration.backed_up", what, where).splitlines()[-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A store that can be lost, and how it is backed up."""

    url: str
    back_up: Callable[[], None]
    lose: Callable[[], None]
    restore: Callable[[], None]


@pytest.fixture
def folder(tmp_path: Path) -> Kept:
    store = tmp_path / "store"
    copies = Copies(store, tmp_path / "backup")

    def lose() -> None:
        for table in (store / "store").iterdir():
            shutil.rmtree(table)

    return Kept(url=f"embedded:{store}", back_up=copies.back_up, lose=lose, restore=copies.restore)


@pytest.fixture
def server(clickhouse_server: ClickHouseServer, tmp_path: Path) -> Iterator[Kept]:
    """A database on a server without ``BACKUP``."""
    url = clickhouse_server.url("backed_up")
    with Client("127.0.0.1", port=clickhouse_server.port, user=USER, password=PASSWORD) as client:
        frozen = Frozen(clickhouse_server.data, "backed_up", client.execute)

        def restore() -> None:
            open_store(url).close()  # as `rankscope migrate`
            frozen.restore(tmp_path / "backup")

        yield Kept(
            url=url,
            back_up=lambda: frozen.back_up(tmp_path / "backup"),
            lose=lambda: client.execute("DROP DATABASE backed_up"),
            restore=restore,
        )


@pytest.mark.long
@pytest.mark.parametrize("kind", ["folder", pytest.param("server", marks=pytest.mark.clickhouse)])
def test_restored_store_gives_the_same_answers_and_continues_its_run_without_duplicates(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    kept: Kept = request.getfixturevalue(kind)
    answers = run("fill", kept.url)["answers"]
    with road(tmp_path, kept.url, num_ranks=NUM_RANKS) as parts:
        wait_for_acknowledgement(parts)
        before = acknowledged(parts)
        kept.back_up()
        wait_for_acknowledgement(parts)
        parts.collector.kill()
        kept.lose()
        kept.restore()
        until_loss = acknowledged(parts)
        parts.start_collector()
        wait_for_acknowledgement(parts)
        assert [rank.end() for rank in parts.ranks] == [0] * NUM_RANKS
        assert parts.agent.wait(60) == 0, parts.agent.said()
        assert parts.collector.end() == 0
        written = records_written(parts.spool)
    told = run("tell", kept.url)
    assert told["answers"] == answers
    for rank, numbers in enumerate(told["numbers"]):
        assert len(numbers) == len(set(numbers))
        missing = set(range(written[rank])) - set(numbers)
        assert len(missing) == told["missing"][rank] > 0
        assert before[rank] <= min(missing) <= max(missing) < until_loss[rank]


def acknowledged(parts: Road) -> list[int]:
    """One past the last acknowledged record of each rank."""
    return [RankReader(rank).acked() for rank in find_rank_dirs(parts.spool)]


def wait_for_acknowledgement(parts: Road) -> None:
    """Wait until more records of each rank are acknowledged, also of those that were sent before."""
    for _ in range(2):
        before = acknowledged(parts)
        until(
            lambda before=before: all(now > old for now, old in zip(acknowledged(parts), before, strict=True)),
            what="acknowledged records of each rank",
        )


def test_statements_for_a_server_restore_each_row_that_was_acknowledged_before_the_backup(tmp_path: Path) -> None:
    told = run("engine", str(tmp_path))
    assert told["restored_contents"] == told["contents"]
    assert sum(num_rows for num_rows, _ in told["contents"].values()) > 0
    assert told["plan"] == []
    assert told["new_rows"] == [ROWS // 2] * NUM_RANKS
    for restored, stored in zip(told["restored"], told["stored"], strict=True):
        assert restored == list(range(len(restored)))
        assert told["before_full"] < told["before_added"] <= len(restored) < told["lost"]
        assert stored == [*range(len(restored) + ROWS // 2), *range(told["lost"], told["lost"] + ROWS)]
