"""Exactly-once storage: each row is stored once, whatever is sent again and however the store fails."""

import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest

from telemetry.collector.counters import Counters
from telemetry.collector.ingest import Ingest, QueueFullError
from telemetry.errors import UnreachableError
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import Store
from telemetry.stores.queries import HighWater, Marks, NumberedTable, Samples
from telemetry.wire.client import CollectorClient
from telemetry.wire.codec import Ack, Batch
from tests.deadline import until
from tests.telemetry.faulty_store import FaultyStore
from tests.telemetry.made_rows import insert, made, numbered_spans, of_run
from tests.telemetry.served import collecting


@pytest.fixture
def faulty(embedded: EmbeddedStore) -> FaultyStore:
    return FaultyStore(embedded)


@pytest.fixture
def collector(faulty: FaultyStore) -> Iterator[CollectorClient]:
    with collecting(faulty) as client:
        yield client


def stored(store: Store) -> list[tuple[int, int]]:
    """(rank, seq) of every span, in order."""
    rows = store.query("SELECT rank, seq FROM spans ORDER BY rank, seq")
    return list(zip(rows["rank"].to_pylist(), rows["seq"].to_pylist(), strict=True))


def send(collector: CollectorClient, first_seq: int, count: int, *, rank: int = 0) -> Ack:
    return collector.post("spans", of_run(numbered_spans(first_seq, count, rank=rank)))


def test_a_batch_sent_again_is_stored_once(collector: CollectorClient, embedded: Store) -> None:
    assert send(collector, 0, 10) == Ack(rows=10, duplicates=0)
    assert send(collector, 0, 10) == Ack(rows=0, duplicates=10)
    assert stored(embedded) == [(0, seq) for seq in range(10)]


def test_overlapping_batch_stores_only_its_new_rows(collector: CollectorClient, embedded: Store) -> None:
    send(collector, 0, 10)
    assert send(collector, 4, 20) == Ack(rows=14, duplicates=6)
    assert stored(embedded) == [(0, seq) for seq in range(24)]


def test_duplicates_in_a_batch_of_several_ranks_are_removed_for_each_rank(
    collector: CollectorClient, embedded: Store
) -> None:
    send(collector, 0, 5, rank=1)
    both = pa.concat_tables([numbered_spans(0, 3, rank=2), numbered_spans(3, 4, rank=1)])
    assert collector.post("spans", of_run(both)) == Ack(rows=5, duplicates=2)
    assert stored(embedded) == [(1, seq) for seq in range(7)] + [(2, seq) for seq in range(3)]


def test_rows_after_a_gap_in_sequence_numbers_are_stored(collector: CollectorClient, embedded: Store) -> None:
    send(collector, 0, 2)
    send(collector, 50, 2)
    assert stored(embedded) == [(0, 0), (0, 1), (0, 50), (0, 51)]


def test_sequence_numbers_are_separate_for_each_table_run_and_attempt(collector: CollectorClient) -> None:
    send(collector, 0, 10)
    spans = numbered_spans(0, 10)
    assert collector.post("spans", of_run(spans, attempt=1)).rows == 10
    assert collector.post("spans", of_run(spans, run_id="other")).rows == 10
    assert collector.post("marks", of_run(made("marks", [{"seq": 3, "name": "gc"}]))).rows == 1
    assert collector.post("samples", of_run(made("samples", [{"seq": 4, "metric": "loss"}]))).rows == 1
    assert collector.read(Marks(run_id="run", attempt=0)).num_rows == 1
    assert collector.read(Samples(run_id="run", attempt=0)).num_rows == 1


def test_new_collector_recognizes_duplicates_of_rows_in_the_store(embedded: Store) -> None:
    with collecting(embedded) as first:
        send(first, 0, 10)
    with collecting(embedded) as second:
        assert send(second, 5, 10) == Ack(rows=5, duplicates=5)
    assert stored(embedded) == [(0, seq) for seq in range(15)]


def test_insert_that_succeeded_without_confirmation_is_not_repeated(
    collector: CollectorClient, faulty: FaultyStore, embedded: Store
) -> None:
    send(collector, 0, 5)
    faulty.drop_answers = True
    with pytest.raises(UnreachableError, match="hint: start it again"):
        send(collector, 5, 5)
    faulty.drop_answers = False
    assert send(collector, 5, 10) == Ack(rows=5, duplicates=5)
    assert stored(embedded) == [(0, seq) for seq in range(15)]


def test_the_collector_recovers_by_itself_when_the_store_is_back(
    collector: CollectorClient, faulty: FaultyStore, embedded: Store
) -> None:
    faulty.down = True
    assert not collector.healthy()
    with pytest.raises(UnreachableError):
        send(collector, 0, 5)
    with pytest.raises(UnreachableError):
        collector.read(HighWater(table="spans", run_id="run", attempt=0))
    faulty.down = False
    assert collector.healthy()
    assert send(collector, 0, 5).rows == 5


def test_internal_error_of_the_collector_is_logged_and_the_batch_can_be_sent_again(
    collector: CollectorClient, faulty: FaultyStore, embedded: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    faulty.broken = True
    with pytest.raises(UnreachableError, match="see the collector's log"):
        send(collector, 0, 5)
    assert "storing failed: ArithmeticError: a fault of ours" in capsys.readouterr().err
    faulty.broken = False
    assert send(collector, 0, 5) == Ack(rows=5, duplicates=0)
    assert stored(embedded) == [(0, seq) for seq in range(5)]


def test_rows_sent_at_the_same_time_by_many_ranks_are_each_stored_once(
    collector: CollectorClient, embedded: Store
) -> None:
    def send_all(rank: int) -> None:
        for first_seq in (0, 20, 5, 40, 25, 0):
            send(collector, first_seq, 25, rank=rank)

    threads = [threading.Thread(target=send_all, args=(rank,)) for rank in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows = stored(embedded)
    assert len(rows) == len(set(rows))
    assert {rank for rank, _ in rows} == set(range(6))
    assert {seq for _, seq in rows} == set(range(65))


@pytest.fixture
def ingest(faulty: FaultyStore) -> Iterator[Ingest]:
    ingest = Ingest(faulty, Counters(), queue_bytes=1, linger_s=0)
    ingest.start()
    yield ingest
    faulty.gate.set()
    ingest.close()


def batch(first_seq: int, *, rank: int = 0) -> Batch:
    return Batch(table="spans", run_id="run", attempt=0, rows=numbered_spans(first_seq, 5, rank=rank))


def test_full_queue_rejects_batches_until_there_is_room(ingest: Ingest, faulty: FaultyStore) -> None:
    faulty.gate.clear()
    held = ingest.submit(batch(0))
    until(lambda: faulty.waiting, what="the writer in its insert")
    queued = ingest.submit(batch(5))
    with pytest.raises(QueueFullError, match="too many rows wait"):
        ingest.submit(batch(10))
    faulty.gate.set()
    assert held.result(10).rows == queued.result(10).rows == 5
    assert ingest.submit(batch(10)).result(10).rows == 5


def test_queued_batches_are_stored_before_the_writer_ends(ingest: Ingest, faulty: FaultyStore, embedded: Store) -> None:
    faulty.gate.clear()
    ingest.submit(batch(0))
    until(lambda: faulty.waiting, what="the writer in its insert")
    ingest.submit(batch(5))
    closing = threading.Thread(target=ingest.close)
    closing.start()
    faulty.gate.set()
    closing.join()
    assert stored(embedded) == [(0, seq) for seq in range(10)]
    with pytest.raises(QueueFullError):
        ingest.submit(batch(10))


@pytest.mark.parametrize("down", [False, True])
def test_a_request_that_was_cancelled_does_not_end_the_writer(
    ingest: Ingest, faulty: FaultyStore, embedded: Store, down: bool
) -> None:
    faulty.gate.clear()
    held = ingest.submit(batch(0))
    until(lambda: faulty.waiting, what="the writer in its insert")
    assert not held.cancel()
    assert ingest.submit(batch(5)).cancel()
    faulty.down = down
    faulty.gate.set()
    until(held.done, what="the writer goes on")
    faulty.down = False
    until(lambda: ingest.submit(batch(10)).result(10).rows == 5, what="a later batch is stored")
    assert (0, 14) in stored(embedded)


@pytest.mark.parametrize("table", ["spans", "samples", "marks"])
def test_high_water_marks_are_read_without_reading_the_rows(embedded: EmbeddedStore, table: NumberedTable) -> None:
    """Each part of the table also holds the largest sequence number of each rank."""
    insert(embedded, table, made(table, [{"rank": 1, "seq": 6}, {"rank": 2, "seq": 4}]))
    question = HighWater(table=table, run_id="run", attempt=0, ranks=(1,))
    plan = embedded.query(f"EXPLAIN {question.sql()}", question.parameters())["explain"].to_pylist()
    assert any("ReadFromMergeTree (opening_water)" in line for line in plan), plan
    answer = embedded.query(question.sql(), question.parameters())
    assert answer.to_pylist() == [{"rank": 1, "opened_ns": -1, "next_seq": 7}]
