"""A store in memory, as every test of the dashboard uses it."""

from collections.abc import Iterator
from contextlib import contextmanager

from telemetry.stores.embedded import EmbeddedStore


@contextmanager
def memory_store() -> Iterator[EmbeddedStore]:
    """A store with its tables, gone afterwards."""
    store = EmbeddedStore()
    store.migrate()
    try:
        yield store
    finally:
        store.close()


def empty(store: EmbeddedStore) -> None:
    """Take all rows out. Making the tables anew takes longer than most tests."""
    filled = "SELECT DISTINCT table FROM system.parts WHERE active AND rows AND database = currentDatabase()"
    for table in store.query(filled)["table"].to_pylist():
        if table != "migrations":
            store.database.execute(f"TRUNCATE TABLE {table}")
