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
