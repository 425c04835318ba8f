"""A store of either kind that the tests of a module share: made once, filled once, and only asked."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from telemetry.stores.interface import Store
from telemetry.stores.open import open_store
from tests.memory_store import memory_store

ENGINES = ("embedded", pytest.param("server", marks=pytest.mark.clickhouse))
"""Parameters of a fixture that gives each kind in turn."""


@contextmanager
def either_store(request: pytest.FixtureRequest, database: str) -> Iterator[Store]:
    """An empty one of the kind in ``request.param``; on the server under a name of its own."""
    if request.param == "embedded":
        with memory_store() as store:
            yield store
        return
    on_server = open_store(request.getfixturevalue("clickhouse_server").url(database))
    try:
        yield on_server
    finally:
        on_server.close()
