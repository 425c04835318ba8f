"""Clusters that tests share: two of this machine, and one of the user for tests that need no control of processes.

RANKSCOPE_TEST_CLUSTER=clickhouse://user:password@a,b,c/?cluster=NAME    two shards or more; databases are removed again
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from uuid import uuid4

import pytest

from telemetry.stores.address import parse_address
from telemetry.stores.clickhouse import ClickHouseStore
from telemetry.stores.interface import Store
from telemetry.stores.open import open_store
from tests.cluster.servers import Cluster, Layout, running_cluster

GIVEN = os.environ.get("RANKSCOPE_TEST_CLUSTER", "")
Opener = Callable[[], Store]


@pytest.fixture(scope="session")
def two_shards() -> Iterator[Cluster]:
    """Two shards of two replicas."""
    with running_cluster(Layout(shards=2, replicas=2)) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def three_replicas() -> Iterator[Cluster]:
    """One shard of three replicas."""
    with running_cluster(Layout(shards=1, replicas=3)) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a new database on the user's cluster, or on two shards of this machine."""
    name = f"rankscope_test_{uuid4().hex[:8]}"
    if not GIVEN:
        yield request.getfixturevalue("two_shards").url(name)
        return
    before, _, options = GIVEN.partition("?")
    scheme, _, rest = before.partition("://")
    made = f"{scheme}://{rest.partition('/')[0]}/{name}?{options}"
    yield made
    with without_database(made) as store:
        store.database.execute(f"DROP DATABASE {name} ON CLUSTER {store.database.cluster}")


@contextmanager
def without_database(url: str) -> Iterator[ClickHouseStore]:
    """A store of the cluster that selects the database ``default``."""
    store = ClickHouseStore(replace(parse_address(url), database="default"))
    try:
        yield store
    finally:
        store.close()


@pytest.fixture(scope="module")
def store(url: str) -> Iterator[Store]:
    opened = open_store(url)
    yield opened
    opened.close()
