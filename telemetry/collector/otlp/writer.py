"""Groups many small OTLP requests into few large inserts.

    requests --submit--> [queue, bounded] --group--> one insert a table --> every request of the group is answered

OTLP is at-least-once: a sender without an answer sends again, and then the rows are stored twice. Rows of ranks must be
stored once. They use another path (``telemetry/collector/ingest.py``).
"""

import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future

import pyarrow as pa

from telemetry.collector.counters import Counters
from telemetry.collector.group_queue import GroupQueue
from telemetry.collector.writer import storing_failed
from telemetry.errors import UnreachableError
from telemetry.stores.interface import Store
from telemetry.wire.codec import Ack

GROUP_BYTES = 64 * 2**20
"""What one round of inserts takes at most, beside its first request."""
Rows = Mapping[str, pa.Table]
"""Table -> rows."""


class OtlpWriter:
    """Stores rows of the ``otel_*`` tables, in a thread of its own between :meth:`start` and :meth:`close`."""

    def __init__(self, store: Store, counters: Counters, *, queue_bytes: int, linger_s: float) -> None:
        self._store = store
        self._counters = counters
        self._queue: GroupQueue[Rows] = GroupQueue(queue_bytes=queue_bytes, group_bytes=GROUP_BYTES, linger_s=linger_s)
        self._thread = threading.Thread(target=self._write, name="rankscope-otlp", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, tables: Rows) -> "Future[None]":
        """Queue rows, table by table. The future ends when they are stored, or with an UnreachableError: send again.

        Raises:
            QueueFullError: at once, when too much waits already, or the writer is closing.
        """
        done = self._queue.submit(tables, sum(rows.nbytes for rows in tables.values()))
        for table, rows in tables.items():
            self._counters.received(table, rows.num_rows)
        return done

    def close(self) -> None:
        """Store what is queued, then end. Safe to repeat."""
        self._queue.close()
        if self._thread.is_alive():
            self._thread.join()

    def _write(self) -> None:
        while group := self._queue.next_group():
            failure = self._try_insert([waiting.item for waiting in group])
            for waiting in group:
                waiting.finish(failure)

    def _try_insert(self, group: Sequence[Rows]) -> UnreachableError | None:
        try:
            self._insert(group)
        except Exception as error:
            return storing_failed(error)
        return None

    def _insert(self, group: Sequence[Rows]) -> None:
        blocks: dict[str, list[pa.Table]] = {}
        for tables in group:
            for table, rows in tables.items():
                blocks.setdefault(table, []).append(rows)
        for table, rows_of_each in blocks.items():
            rows = pa.concat_tables(rows_of_each)
            began = time.perf_counter()
            self._store.insert(table, rows)
            self._counters.inserted(table, time.perf_counter() - began)
            self._counters.stored(table, Ack(rows=rows.num_rows, duplicates=0))
