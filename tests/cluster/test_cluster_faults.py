"""Replicas and ZooKeeper of a cluster are stopped, killed and emptied. Each row is stored once, on every replica.

A writer sends batches to the store as a collector does: a batch that failed is sent again, and rows that are stored
are not stored again.
"""

import itertools
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from telemetry.collector.counters import Counters
from telemetry.collector.writer import Outcome, RowWriter
from telemetry.errors import UnreachableError
from telemetry.stores import inserts
from telemetry.stores.interface import Store, StoreReader
from telemetry.stores.open import open_store
from telemetry.wire.codec import Ack, Batch
from tests.cluster.conftest import GIVEN
from tests.cluster.servers import Cluster, Replica, ZooKeeper
from tests.deadline import until
from tests.telemetry.made_rows import numbered_spans

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.clickhouse,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(GIVEN), reason="needs the processes of the servers"),
]

DATABASE = "faults"
RANKS = range(8)
"""They are on both shards."""
_numbers = itertools.count(1)


class Written:
    """A run in a database of a cluster, and a writer of one batch after another."""

    def __init__(self, cluster: Cluster, replicas: list[Replica] | None = None) -> None:
        self.cluster = cluster
        self._run = f"run-{next(_numbers)}"
        self.store: Store = open_store(cluster.url(DATABASE, replicas))
        self._writer = RowWriter(self.store, StoreReader(self.store), Counters())
        self._next = 0

    def send(self) -> Outcome:
        """Send the current batch of all ranks. The next call sends the next one if this one is stored."""
        rows = [numbered_spans(self._next, 10, rank=rank) for rank in RANKS]
        batches = [Batch(table="spans", run_id=self._run, attempt=0, rows=part) for part in rows]
        outcomes = self._writer.store("spans", batches)
        if all(isinstance(outcome, Ack) for outcome in outcomes):
            self._next += 10
        return next((outcome for outcome in outcomes if not isinstance(outcome, Ack)), outcomes[0])

    def is_stored(self) -> bool:
        return isinstance(self.send(), Ack)

    def counts(self, store: Store | None = None) -> list[tuple[object, ...]]:
        """Rows and different numbers of each rank."""
        counted = (store or self.store).query(
            "SELECT count() AS num_rows, uniqExact(seq) AS num_numbers FROM spans WHERE run_id = %(run)s"
            " GROUP BY rank ORDER BY rank",
            {"run": self._run},
        )
        return [tuple(row.values()) for row in counted.to_pylist()]

    def wanted(self) -> list[tuple[object, ...]]:
        return [(self._next, self._next)] * len(RANKS)

    def are_equal(self) -> bool:
        """Whether all replicas of each shard have the same rows, and each row once."""
        counts = (
            f"SELECT rank, count(), uniqExact(seq) FROM {DATABASE}.spans_local WHERE run_id = '{self._run}'"
            " GROUP BY rank ORDER BY rank"
        )
        for shard in {replica.shard for replica in self.cluster.replicas}:
            first, *others = [replica.rows(counts) for replica in self.cluster.of_shard(shard)]
            if any(other != first for other in others) or any(rows != numbers for _, rows, numbers in first):
                return False
        return True


@contextmanager
def written(cluster: Cluster, replicas: list[Replica] | None = None) -> Iterator[Written]:
    """A run with a first batch. At the end all of it must be stored once, on every replica."""
    made = Written(cluster, replicas)
    with closing(made.store):
        until(made.is_stored, seconds=240, what="the first batch")
        yield made
        assert made.counts() == made.wanted()
        until(made.are_equal, seconds=120, what="equal replicas")


@contextmanager
def stopped(replica: Replica) -> Iterator[None]:
    """SIGSTOP for the block: connections stay open without any answer."""
    replica.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        replica.signal(signal.SIGCONT)


@contextmanager
def dead(server: Replica | ZooKeeper) -> Iterator[None]:
    """SIGKILL. The server is started again after the block."""
    server.kill()
    try:
        yield
    finally:
        server.start()


@contextmanager
def behind(replica: Replica) -> Iterator[None]:
    """For the block, the replica fetches no spans from others."""
    replica.rows(f"SYSTEM STOP FETCHES {DATABASE}.spans_local")
    try:
        yield
    finally:
        replica.rows(f"SYSTEM START FETCHES {DATABASE}.spans_local")


def test_with_three_replicas_inserts_continue_while_one_is_stopped(three_replicas: Cluster) -> None:
    *_, third = three_replicas.replicas
    with written(three_replicas) as run, stopped(third):
        until(run.is_stored, seconds=120, what="a batch while a replica is stopped")
        assert run.is_stored()
        assert run.counts() == run.wanted()


def test_with_three_replicas_inserts_continue_while_the_server_of_the_collector_is_dead(
    three_replicas: Cluster,
) -> None:
    first, *_ = three_replicas.replicas
    with written(three_replicas) as run, dead(first):
        until(run.is_stored, seconds=120, what="a batch while a replica is dead")
        assert run.is_stored()


def test_query_through_a_replica_that_is_behind_is_answered_by_another(three_replicas: Cluster) -> None:
    first, second, third = three_replicas.replicas
    with written(three_replicas, [first, second]) as run, behind(third):
        assert run.is_stored()
        through_third = open_store(three_replicas.url(DATABASE, [third, first]))
        assert run.counts(through_third) == run.wanted()
        through_third.close()


def test_with_two_replicas_inserts_are_refused_while_one_is_dead_and_stored_once_after_it(two_shards: Cluster) -> None:
    first, second, *_ = two_shards.replicas
    with written(two_shards, [first]) as run:
        with dead(second):
            assert run.counts() == run.wanted()
            outcome = run.send()
            assert isinstance(outcome, UnreachableError)
            assert outcome.hint == "check that most replicas of each shard run; nothing is lost"
        until(run.is_stored, seconds=240, what="a batch after the replica is back")


def test_settle_waits_for_rows_that_too_few_replicas_have(two_shards: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inserts, "SETTLE_S", 1.0)
    first, second, *_ = two_shards.replicas
    with written(two_shards, [first]) as run:
        with behind(second):
            assert isinstance(run.send(), UnreachableError)
            with pytest.raises(UnreachableError, match="an insert still runs"):
                run.store.settle()
        until(run.is_stored, seconds=240, what="a batch after the replica has the rows")


def test_collector_starts_while_a_replica_is_dead(two_shards: Cluster) -> None:
    first, second, *_ = two_shards.replicas
    with written(two_shards, [first]), dead(second):
        open_store(two_shards.url(DATABASE, [second, first])).close()


def test_inserts_fail_while_zookeeper_is_dead_and_continue_after_it(two_shards: Cluster) -> None:
    with written(two_shards) as run:
        with dead(two_shards.zookeeper):
            outcome = run.send()
            assert isinstance(outcome, UnreachableError)
            assert outcome.hint.startswith("check that ZooKeeper or ClickHouse Keeper of the cluster runs")
        until(run.is_stored, seconds=240, what="a batch after ZooKeeper is back")


def test_replica_that_lost_its_disk_is_filled_from_the_other_replica(two_shards: Cluster) -> None:
    *_, third, fourth = two_shards.replicas
    with written(two_shards) as run:
        with dead(fourth):
            fourth.empty()
            fourth.restore_from(third)
        until(run.is_stored, seconds=240, what="a batch after the replica is back")
