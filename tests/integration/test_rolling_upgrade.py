"""Two collectors of one database are upgraded one after the other, while ranks record and agents send to both.

ranks -> agent --> relay --.      .--> collector 0    old | - | new .................
         impatient agents --+----+--> collector 1    old ............... | - | new .
                                         database    old | migration | new
"""

import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from telemetry.stores.interface import Store, StoreReader
from telemetry.stores.migrations import SCHEMA
from telemetry.stores.open import find_store
from telemetry.stores.queries import StageCounts
from tests.clickhouse_server import ClickHouseServer
from tests.deadline import until
from tests.integration.chaos.relay import Relay
from tests.integration.counted import records_written
from tests.integration.processes import COLLECT, Part, free_port
from tests.integration.test_two_collectors import ImpatientAgent, wait_for
from tests.integration.writer import RUN

pytestmark = [pytest.mark.clickhouse, pytest.mark.chaos, pytest.mark.long, pytest.mark.timeout(240)]

NUM_RANKS = 2
NUM_AGENTS = 2
FIRST_OF_AGENTS = NUM_RANKS
"""The impatient agents send rows of ranks from here on."""
NUM_OLD_SCRIPTS = 12
"""Scripts of the old version. The new one has all scripts, and :data:`NEXT`."""
NEXT = """
ALTER TABLE spans ADD COLUMN IF NOT EXISTS colour UInt8 DEFAULT 7;

SELECT sleep(2);

ALTER TABLE samples ADD COLUMN IF NOT EXISTS colour UInt8 DEFAULT 7;

ALTER TABLE ranks ADD COLUMN IF NOT EXISTS colour UInt8 DEFAULT 7;

ALTER TABLE claims ADD COLUMN IF NOT EXISTS colour UInt8 DEFAULT 7;

CREATE TABLE IF NOT EXISTS colours (colour UInt8, name String) ENGINE = MergeTree ORDER BY colour;
"""
"""A script that changes the tables into which the other collector writes. It takes two seconds at least."""
ROWS = """
SELECT rank, count() AS stored, uniqExact(seq) AS different, groupUniqArray(colour) AS colours FROM
    (SELECT rank, seq, colour FROM spans UNION ALL SELECT rank, seq, colour FROM samples)
GROUP BY rank ORDER BY rank
"""
COLLECT_WITH = f"""
import sys
from pathlib import Path
from telemetry.stores import migrations
migrations.SCHEMA = Path(sys.argv.pop())
{COLLECT}
"""
"""A collector whose version has the scripts in a folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """Folders with the scripts of the schema."""

    old: Path
    new: Path


@pytest.fixture
def versions(tmp_path: Path) -> Versions:
    made = Versions(old=tmp_path / "old", new=tmp_path / "new")
    scripts = sorted(SCHEMA.glob("[0-9]*.sql"))
    for folder, contained in ((made.old, scripts[:NUM_OLD_SCRIPTS]), (made.new, scripts)):
        folder.mkdir()
        for script in contained:
            shutil.copy(script, folder)
    (made.new / f"{len(scripts) + 1:04d}_next.sql").write_text(NEXT)
    return made


class Upgraded:
    """A collector that can be started in two versions, on the same port."""

    def __init__(self, number: int, store_url: str, versions: Versions, folder: Path) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        log = folder / f"collector-{number}.log"
        self.old, self.new = [
            Part(
                f"collector-{number}",
                [sys.executable, "-c", COLLECT_WITH, store_url, str(self.port), str(scripts)],
                log,
            )
            for scripts in (versions.old, versions.new)
        ]


@contextmanager
def parts(folder: Path, url: str) -> Iterator[tuple[Part, list[Part]]]:
    """A running agent that sends to ``url``, and ranks. They are killed at the end."""
    spool, python = folder / "spool", sys.executable
    command = [python, "-m", "telemetry.agent", "--spool", str(spool), "--collector", url, "--interval", "0.1"]
    agent = Part("agent", command, folder / "agent.log")
    ranks = [
        Part(
            f"rank-{rank}",
            [python, "-m", "tests.integration.writer", str(spool), str(rank), str(NUM_RANKS)],
            folder / f"rank-{rank}.log",
        )
        for rank in range(NUM_RANKS)
    ]
    with ExitStack() as cleanup:
        for part in (agent, *ranks):
            cleanup.callback(part.kill)
            part.start()
        yield agent, ranks


def test_upgrade_of_one_collector_after_the_other_loses_and_duplicates_nothing(
    clickhouse_server: ClickHouseServer, versions: Versions, tmp_path: Path
) -> None:
    url = clickhouse_server.url("rolling")
    first, second = collectors = [Upgraded(number, url, versions, tmp_path) for number in range(2)]
    relay = Relay(first.port, second.port)
    agents = [ImpatientAgent(FIRST_OF_AGENTS + number, [first.url, second.url]) for number in range(NUM_AGENTS)]
    with ExitStack() as cleanup:
        cleanup.callback(relay.close)
        for collector in collectors:
            cleanup.callback(collector.old.kill)
            cleanup.callback(collector.new.kill)
            collector.old.start()
        wait_for([(collector.old, collector.url) for collector in collectors])
        store = find_store(url)
        cleanup.callback(store.close)
        agent, ranks = cleanup.enter_context(parts(tmp_path, f"http://127.0.0.1:{relay.port}"))
        for sender in agents:
            cleanup.callback(sender.told_to_end.set)
            sender.start()
        wait_for_rows(store, agents)
        for collector in collectors:
            assert scripts_of(store) == (NUM_OLD_SCRIPTS if collector is first else newest(versions))
            assert collector.old.end() == 0
            wait_for_rows(store, agents)
            before = sum(sender.acked for sender in agents)
            collector.new.start()
            wait_for([(collector.new, collector.url)])
            assert sum(sender.acked for sender in agents) > before
            wait_for_rows(store, agents)
        for sender in agents:
            sender.told_to_end.set()
            sender.join()
        assert [rank.end() for rank in ranks] == [0] * NUM_RANKS
        assert agent.wait(60) == 0, agent.said()
        assert [collector.new.end() for collector in collectors] == [0, 0]
        check_rows(store, records_written(tmp_path / "spool") + [sender.acked for sender in agents])


def check_rows(store: Store, sent: list[int]) -> None:
    """Each record is stored once, and has the default of the new column. ``sent``: number of records of each rank."""
    rows = store.query(ROWS).to_pylist()
    assert [row["stored"] for row in rows] == sent
    assert [row["different"] for row in rows] == sent
    assert [row["colours"] for row in rows] == [[7]] * len(sent)
    counts = StoreReader(store).read(StageCounts(run_id=RUN, attempt=0))["spans"].to_pylist()
    assert sum(counts) == store.query(f"SELECT count() AS num FROM spans WHERE run_id = '{RUN}'")["num"][0].as_py() > 0


def wait_for_rows(store: Store, agents: list[ImpatientAgent]) -> None:
    """Wait until more rows of each rank are stored, and more rows of each impatient agent are acknowledged."""
    rows = f"SELECT rank, count() AS rows FROM spans WHERE run_id = '{RUN}' GROUP BY rank"

    def of_ranks() -> dict[int, int]:
        return {row["rank"]: row["rows"] for row in store.query(rows).to_pylist()}

    before, acked = of_ranks(), [sender.acked for sender in agents]
    until(
        lambda: len(now := of_ranks()) == NUM_RANKS and all(now[rank] > before.get(rank, 0) for rank in now),
        what="rows of each rank",
    )
    until(
        lambda: all(sender.acked > count for sender, count in zip(agents, acked, strict=True)),
        what="rows of each impatient agent",
    )


def scripts_of(store: Store) -> int:
    """The newest script of the database."""
    newest: int = store.query("SELECT max(number) AS newest FROM migrations")["newest"][0].as_py()
    return newest


def newest(versions: Versions) -> int:
    return len(list(versions.new.iterdir()))
