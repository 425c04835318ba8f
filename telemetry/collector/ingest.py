"""The collector's only writing thread: batches from many connections become few large inserts.

    connections --submit--> [queue, bounded] --group--> one insert a table (writer.py) --> acknowledge

A batch is acknowledged when the insert that holds its rows has returned. With one writing thread, the rows of a rank
are stored in the order of their numbers.
"""

import threading
from concurrent.futures import Future

from telemetry.collector.counters import Counters
from telemetry.collector.group_queue import GroupQueue, Waiting
from telemetry.collector.writer import Outcome, RowWriter
from telemetry.errors import UnannouncedError, UnreachableError
from telemetry.stores.interface import Store, StoreReader
from telemetry.wire.codec import Ack, Batch

GROUP_BYTES = 128 * 2**20
"""What one round of inserts takes at most, beside its first batch."""


class Ingest:
    """Stores batches, each row with a ``seq`` exactly once."""

    def __init__(self, store: Store, counters: Counters, *, queue_bytes: int, linger_s: float) -> None:
        self._writer = RowWriter(store, StoreReader(store), counters)
        self._counters = counters
        self._queue: GroupQueue[Batch] = GroupQueue(
            queue_bytes=queue_bytes, group_bytes=GROUP_BYTES, linger_s=linger_s, on_change=counters.queued
        )
        self._thread = threading.Thread(target=self._write, name="rankscope-ingest", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, batch: Batch) -> "Future[Ack]":
        """Queue a batch. The future ends with what became of it, or an UnreachableError: then send it again; or a
        RefusedRowsError: never send it again.

        Raises:
            QueueFullError: at once, when too much waits already, or the writer is closing.
        """
        done = self._queue.submit(batch, batch.rows.nbytes)
        self._counters.received(batch.table, batch.rows.num_rows)
        return done

    def close(self) -> None:
        """Store what is queued, then end. Safe to repeat."""
        self._queue.close()
        if self._thread.is_alive():
            self._thread.join()

    def _write(self) -> None:
        while group := self._queue.next_group():
            by_table: dict[str, list[Waiting[Batch]]] = {}
            for waiting in group:
                by_table.setdefault(waiting.item.table, []).append(waiting)
            # Ranks are stored first: then every stored span has a known rank.
            for table in sorted(by_table, key=lambda name: name != "ranks"):
                self._store_group(table, by_table[table])

    def _store_group(self, table: str, group: list[Waiting[Batch]]) -> None:
        outcomes = self._writer.store(table, [waiting.item for waiting in group])
        for waiting, outcome in zip(group, outcomes, strict=True):
            self._count(table, outcome)
            waiting.finish(outcome)

    def _count(self, table: str, outcome: Outcome) -> None:
        match outcome:
            case Ack():
                self._counters.stored(table, outcome)
            case UnannouncedError():
                pass  # counted with the other answers, by its status
            case UnreachableError():
                self._counters.failed(table)
