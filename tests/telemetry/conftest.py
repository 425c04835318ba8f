"""Empty stores of both kinds, and a recorder without a file."""

import itertools
from collections.abc import Iterator

import pytest

from telemetry.record.recorder import Recorder
from telemetry.stores.interface import Store
from telemetry.stores.open import open_store

_numbers = itertools.count(1)


@pytest.fixture
def on_server(request: pytest.FixtureRequest) -> Iterator[Store]:
    server = request.getfixturevalue("clickhouse_server")
    store = open_store(server.url(f"test_{next(_numbers)}"))
    yield store
    store.close()


@pytest.fixture(params=["embedded", pytest.param("on_server", marks=pytest.mark.clickhouse)])
def store(request: pytest.FixtureRequest) -> Store:
    """An empty store of each kind in turn."""
    chosen: Store = request.getfixturevalue(request.param)
    return chosen


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    made = Recorder()
    yield made
    made.detach()
