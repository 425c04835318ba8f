"""A store of either kind that the tests of a module share. It is created and filled once, then only queried."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from telemetry.stores.interface import Store
from telemetry.stores.open import open_store
from tests.memory_store import memory_store

ENGINES = ("embedded", pytest.param("server", marks=pytest.mark.clickhouse))
"""Parameters of a fixture that returns each kind of store in turn."""


@contextmanager
def either_store(request: pytest.FixtureRequest, database: str) -> Iterator[Store]:
    """An empty store of the kind in ``request.param``. On the server, its database is called ``database``."""
    if request.param == "embedded":
        with memory_store() as store:
            yield store
        return
    on_server = open_store(request.getfixturevalue("clickhouse_server").url(database))
    try:
        yield on_server
    finally:
        on_server.close()
