"""A cluster is backed up on one replica of each shard while rows are stored, dropped, and restored."""

from contextlib import closing
from pathlib import Path

import pytest

from telemetry.stores.open import open_store
from tests.cluster.conftest import GIVEN, without_database
from tests.cluster.servers import CLUSTER, Cluster, Replica
from tests.cluster.test_cluster import record
from tests.deadline import until
from tests.integration.backed_up import NUM_RANKS, ROWS, Frozen, Writer, answers, numbers

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.clickhouse,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(GIVEN), reason="needs the folders of the servers"),
]

DATABASE = "kept"
ROWS_OF_TABLES = f"""
SELECT table, sum(rows) FROM system.parts WHERE active AND database = '{DATABASE}' GROUP BY table ORDER BY table
"""


def test_restored_cluster_gives_the_same_answers_and_continues_its_run_without_duplicates(
    two_shards: Cluster, tmp_path: Path
) -> None:
    url = two_shards.url(DATABASE)
    sources = [two_shards.of_shard(shard)[0] for shard in (1, 2)]
    frozen = {replica: Frozen(replica.data, DATABASE, replica.rows) for replica in sources}
    with closing(open_store(url)) as store:
        record(store)
        told = answers(store)
        writer = Writer(store)
        writer.start()
        writer.wait(2 * ROWS)
        before = writer.next_seq
        for replica, copies in frozen.items():
            copies.back_up(tmp_path / str(replica.shard))
        writer.wait(2 * ROWS)
        writer.end()
    with without_database(url) as other:
        other.database.execute(f"DROP DATABASE {DATABASE} ON CLUSTER {CLUSTER}")
    with closing(open_store(url)) as store:
        assert numbers(store) == []
        for replica, copies in frozen.items():
            copies.restore(tmp_path / str(replica.shard))
        until(lambda: are_equal(two_shards), seconds=240, what="equal replicas")
        assert answers(store) == told
        restored = [len(one) for one in numbers(store)]
        assert before <= min(restored) <= max(restored) < writer.next_seq
        after = Writer(store)
        sent_again = min(restored) - ROWS // 2
        assert after.store(sent_again) == [max(0, sent_again + ROWS - count) for count in restored]
        after.store(writer.next_seq)
        until(lambda: are_equal(two_shards), seconds=240, what="equal replicas")
        for one in numbers(store):
            assert len(one) == len(set(one))
            assert one[-ROWS:] == [*range(writer.next_seq, writer.next_seq + ROWS)]
            assert len(one) >= before + ROWS
        assert len(numbers(store)) == NUM_RANKS


def are_equal(cluster: Cluster) -> bool:
    """Whether the replicas of each shard have the same number of rows in each table."""

    def rows(replica: Replica) -> list[tuple[object, ...]]:
        return replica.rows(ROWS_OF_TABLES)

    return all(
        len({str(rows(replica)) for replica in cluster.of_shard(shard)}) == 1
        for shard in {replica.shard for replica in cluster.replicas}
    )
