"""Copies of stores that are in use, made and restored by the commands of ``docs/guides/backup.md``.

    python -m tests.integration.backed_up fill URL        fill a store with rows for every query, then as `tell`
    python -m tests.integration.backed_up tell URL        print the answers of queries about these rows, and the record
                                                          numbers of the run that continues
    python -m tests.integration.backed_up engine FOLDER   back up, drop and restore a database that is written

Only one process can open a folder at a time, so tests run these commands.
"""

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any

from telemetry.collector.counters import Counters
from telemetry.collector.writer import RowWriter
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.engine import Session
from telemetry.stores.interface import Store, StoreReader
from telemetry.stores.open import open_store
from telemetry.tables import TABLES
from telemetry.wire.codec import Ack, Batch
from tests.deadline import until
from tests.docs.blocks import blocks, sql_of
from tests.telemetry.made_rows import numbered_spans
from tests.telemetry.test_stores_queries import EVERY_QUERY, fill

GUIDE = "backup.md"
RUN = "chaos"
NUM_RANKS = 2
ROWS = 50
"""Rows of a rank in a batch."""
NUMBERS = """
SELECT rank, groupArray(seq) AS numbers FROM
    (SELECT run_id, rank, seq FROM spans UNION ALL SELECT run_id, rank, seq FROM samples)
WHERE run_id = '{run}' GROUP BY rank ORDER BY rank
"""


def answers(store: Store) -> dict[str, str]:
    """Name of each query about runs -> a hash of its rows, for the runs of :func:`fill`."""
    reader = StoreReader(store)
    of_runs = [query for query in EVERY_QUERY if getattr(query, "run_id", "") or getattr(query, "run_ids", ())]
    return {
        f"{number} {type(query).__name__}": sha256(repr(reader.read(query).to_pylist()).encode()).hexdigest()
        for number, query in enumerate(of_runs)
    }


def contents(store: Store) -> dict[str, list[int]]:
    """Name of each table -> number of its rows outside of the run that continues, and the sum of their hashes.

    Replaced rows are left out, because merges delete them.
    """
    summed = "SELECT count() AS num_rows, sum(cityHash64(*)) AS hash"
    return {
        name: list(
            store.query(f"{summed} FROM {name} WHERE run_id != '{RUN}' SETTINGS final = 1").to_pylist()[0].values()
        )
        for name in TABLES
    }


def num_missing(store: Store) -> dict[int, int]:
    """Rank -> number of missing records of the run that continues, by the query of the guide."""
    (query,) = sql_of(GUIDE, "What a backup contains")
    return {row["rank"]: row["missing"] for row in store.query(query).to_pylist() if row["run_id"] == RUN}


def numbers(store: Store, run: str = RUN) -> list[list[int]]:
    """The stored record numbers of each rank."""
    stored: list[list[int]] = store.query(NUMBERS.format(run=run))["numbers"].to_pylist()
    return [sorted(one) for one in stored]


class Copies:
    """The commands of the guide for a folder."""

    def __init__(self, store: Path, backup: Path) -> None:
        self._variables = {"STORE": str(store), "BACKUP": str(backup), "PATH": "/usr/bin:/bin"}
        self._commands = blocks(GUIDE, "An embedded store", "bash")

    def back_up(self) -> None:
        """``cp`` may miss temporary folders, so its status is not checked."""
        done = self._run(self._commands[0])
        missed = [line for line in done.stderr.splitlines() if "tmp_" not in line]
        assert not missed, missed

    def restore(self) -> None:
        done = self._run("set -e\n" + self._commands[1])
        assert done.returncode == 0, done.stderr

    def _run(self, commands: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", commands], env=self._variables, capture_output=True, text=True, check=False, timeout=120
        )


class Frozen:
    """The statements of the guide for servers older than 22, for the tables of one server.

    Args:
        data: the data folder of the server.
        run: runs SQL on this server, and returns the rows.
    """

    def __init__(self, data: Path, database: str, run: Callable[[str], list[tuple[object, ...]]]) -> None:
        self._data = data
        self._database = database
        self._run = run
        self._list, self._freeze, self._attach = [
            statement.replace("rankscope", database) for statement in sql_of(GUIDE, "Servers older than 22")
        ]

    def back_up(self, backup: Path) -> None:
        for (table,) in self._run(self._list):
            self._run(self._freeze.replace(".TABLE", f".{table}"))
        copytree(self._data / "shadow", backup)
        rmtree(self._data / "shadow")

    def restore(self, backup: Path) -> None:
        """The tables exist, and are empty."""
        for part in sorted(backup.glob(f"*/data/{self._database}/*/*")):
            table = part.parent.name
            copytree(part, self._data / "data" / self._database / table / "detached" / part.name)
            self._run(self._attach.replace(".TABLE", f".{table}").replace("'PART'", f"'{part.name}'"))


class Writer(threading.Thread):
    """Stores batches of a run, one after another, as a collector does."""

    def __init__(self, store: Store) -> None:
        super().__init__(name="writer")
        self._store = store
        self._writer = RowWriter(store, StoreReader(store), Counters())
        self.told_to_end = threading.Event()
        self.next_seq = 0
        """One past the last acknowledged record of each rank."""

    def run(self) -> None:
        while not self.told_to_end.is_set():
            self.store(self.next_seq)

    def store(self, first_seq: int) -> list[int]:
        """Store the batch that begins with a record of each rank. Returns the number of new rows of each rank."""
        rows = [numbered_spans(first_seq, ROWS, rank=rank) for rank in range(NUM_RANKS)]
        outcomes = self._writer.store("spans", [Batch(table="spans", run_id=RUN, attempt=0, rows=one) for one in rows])
        assert all(isinstance(outcome, Ack) for outcome in outcomes), outcomes
        self.next_seq = first_seq + ROWS
        return [outcome.rows for outcome in outcomes if isinstance(outcome, Ack)]

    def wait(self, more: int) -> None:
        """Wait until more records of each rank are acknowledged."""
        wanted = self.next_seq + more
        until(lambda: self.next_seq >= wanted or not self.is_alive(), what="records of the writer")
        assert self.is_alive()

    def end(self) -> None:
        self.told_to_end.set()
        self.join()


def engine(folder: Path) -> dict[str, Any]:
    """Run the statements for a server in this process, while a writer stores rows.

    A process gives its configuration to the first engine that it opens.
    """
    Session(f":memory:?backups.allowed_path={folder}")
    store = EmbeddedStore()
    store.migrate()
    fill(store)
    full, added, drop, restore = [
        statement.replace("rankscope", store.database.name) for statement in sql_of(GUIDE, "A ClickHouse server")
    ]
    told: dict[str, Any] = {"contents": contents(store)}
    writer = Writer(store)
    writer.start()
    for name, statement in (("full", full), ("added", added)):
        writer.wait(2 * ROWS)
        told[f"before_{name}"] = writer.next_seq
        store.query(statement)
    writer.wait(2 * ROWS)
    writer.end()
    told["lost"] = writer.next_seq
    store.database.execute(drop)
    store.query(restore)
    told |= {"restored_contents": contents(store), "restored": numbers(store), "plan": store.plan()}
    after = Writer(store)
    sent_again = len(told["restored"][0]) - ROWS // 2
    told["new_rows"] = after.store(sent_again)
    after.store(writer.next_seq)
    told["stored"] = numbers(store)
    store.close()
    return told


def main(what: str, where: str) -> Any:
    if what == "engine":
        return engine(Path(where))
    store = open_store(where)
    try:
        if what == "fill":
            fill(store)
        return {"answers": answers(store), "numbers": numbers(store), "missing": [*num_missing(store).values()]}
    finally:
        store.close()


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
