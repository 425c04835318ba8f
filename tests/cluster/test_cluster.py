"""A cluster of several servers stores each row once, and answers every query as one server does."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from telemetry.stores.interface import Query, Store, StoreReader
from telemetry.stores.open import find_store
from telemetry.tables import TABLES
from tests.cluster.conftest import GIVEN
from tests.cluster.servers import Cluster
from tests.deadline import until
from tests.each_case import each_case
from tests.integration.test_two_collectors import ImpatientAgent, two_collectors
from tests.memory_store import memory_store
from tests.telemetry.test_stores_queries import EVERY_QUERY, fill
from tests.ui.synthetic_run import SyntheticRun

pytestmark = [pytest.mark.cluster, pytest.mark.clickhouse, pytest.mark.timeout(900)]
of_this_machine = pytest.mark.skipif(bool(GIVEN), reason="needs the processes of the servers")

NUM_STEPS = 20
ROWS_OF_AGENT = 1000
COUNTS = """
SELECT rank, count() AS num_rows, uniqExact(seq) AS num_numbers FROM {table} {where} GROUP BY rank ORDER BY rank
"""
OF_RUN = "WHERE run_id = 'synthetic'"


def record(store: Store) -> None:
    """A run of eight ranks, and rows for every query."""
    run = SyntheticRun()
    run.introduce(store)
    run.advance(store, NUM_STEPS)
    fill(store)


@pytest.fixture(scope="module")
def on_cluster(store: Store) -> Store:
    record(store)
    return store


@pytest.fixture(scope="module")
def on_one_server() -> Iterator[Store]:
    with memory_store() as store:
        record(store)
        yield store


def test_migrated_cluster_needs_no_further_statement(store: Store, url: str) -> None:
    fresh = find_store(url)
    assert fresh.plan() == []
    fresh.close()


@of_this_machine
def test_every_server_has_every_table(store: Store, two_shards: Cluster) -> None:
    wanted = {name for table in TABLES for name in (table, f"{table}_local")}
    for replica in two_shards.replicas:
        found = replica.rows(f"SELECT name FROM system.tables WHERE database = '{name_of(store)}'")
        assert wanted - {name for (name,) in found} == set(), (replica.shard, replica.name)


def test_each_row_of_each_rank_is_stored_once(on_cluster: Store, on_one_server: Store) -> None:
    counts = COUNTS.format(table="spans", where=OF_RUN)
    stored = on_cluster.query(counts).to_pylist()
    assert stored == on_one_server.query(counts).to_pylist()
    assert all(row["num_rows"] == row["num_numbers"] > 0 for row in stored)


@of_this_machine
def test_all_rows_of_a_rank_are_on_all_replicas_of_one_shard(on_cluster: Store, two_shards: Cluster) -> None:
    of_shard = COUNTS.format(table=f"{name_of(on_cluster)}.spans_local", where=OF_RUN)
    first, first_copy, second, second_copy = [replica.rows(of_shard) for replica in two_shards.replicas]
    assert (first, second) == (first_copy, second_copy)
    assert {rank for rank, _, _ in first} & {rank for rank, _, _ in second} == set()
    everything = on_cluster.query(COUNTS.format(table="spans", where=OF_RUN)).to_pylist()
    assert sorted(first + second) == [tuple(row.values()) for row in everything]


@each_case("query", EVERY_QUERY)
def test_query_gives_the_same_rows_as_on_one_server(on_cluster: Store, on_one_server: Store, query: Query) -> None:
    assert StoreReader(on_cluster).read(query) == StoreReader(on_one_server).read(query)


def test_two_collectors_of_a_cluster_store_each_row_once(store: Store, url: str, tmp_path: Path) -> None:
    with two_collectors(url, tmp_path) as collectors:
        agents = [ImpatientAgent(rank, [address for _, address in collectors]) for rank in range(4)]
        for agent in agents:
            agent.start()
        until(lambda: all(agent.acked > ROWS_OF_AGENT for agent in agents), seconds=300, what="rows of all agents")
        for agent in agents:
            agent.told_to_end.set()
        for agent in agents:
            agent.join()
        assert [part.end() for part, _ in collectors] == [0, 0]
    stored = store.query(COUNTS.format(table="spans", where="WHERE run_id = 'run'")).to_pylist()
    assert [(row["num_rows"], row["num_numbers"]) for row in stored] == [(agent.acked, agent.acked) for agent in agents]


def name_of(store: Store) -> str:
    """Name of the database."""
    name: str = store.query("SELECT currentDatabase() AS name")["name"][0].as_py()
    return name
