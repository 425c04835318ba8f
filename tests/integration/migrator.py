"""Migrations that are killed after each statement in turn, each in a separate process.

    test --starts--> this --fork--> child 1: runs statement 1, SIGKILL
                          --fork--> child 2: starts again, runs up to statement 2, SIGKILL   ... until one completes

    python -m tests.integration.migrator URL     prints the number of statements and of kills

The children are forked from a process that has imported slow modules, but not the engine, which must not be forked.
"""

import json
import os
import signal
import sys
from dataclasses import replace

import clickhouse_driver  # noqa: F401
import pandas  # noqa: F401 - the engine would load it in each child

from telemetry.stores import migrations
from telemetry.stores.open import MigratingStore, find_store


def planned(url: str) -> list[str]:
    """The statements of a migration, planned by a child that then ends."""
    reading, writing = os.pipe()
    if not (pid := os.fork()):
        store = find_store(url)
        with os.fdopen(writing, "w") as out:
            json.dump(store.plan(), out)
        store.close()
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        statements: list[str] = json.load(answer)
    os.waitpid(pid, 0)
    return statements


def migrate_until(url: str, last: str) -> bool:
    """Migrate in a child that is killed right after it ran ``last``. Return whether it was killed."""
    if not (pid := os.fork()):
        _run(find_store(url), last)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert status in (0, signal.SIGKILL), status
    return status == signal.SIGKILL


def _run(store: MigratingStore, last: str) -> None:
    database = store.database

    def execute(sql: str) -> None:
        database.execute(sql)
        if sql == last:
            os.kill(os.getpid(), signal.SIGKILL)

    migrations.migrate(replace(database, execute=execute))
    store.close()


if __name__ == "__main__":
    told = planned(sys.argv[1])
    print(json.dumps({"planned": len(told), "killed": sum(migrate_until(sys.argv[1], one) for one in told)}))
