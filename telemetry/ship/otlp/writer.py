"""Many small requests, few large inserts.

    requests --submit--> [queue, bounded] --group--> one insert a table --> every request of the group is answered

OTLP is at-least-once: a sender that hears nothing sends again, and what was stored is then stored twice. Rows of ranks,
which must be stored once, take another road (``telemetry/ship/ingest.py``).
"""

import threading
import time
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field

import pyarrow as pa

from telemetry.ship.counters import Counters
from telemetry.ship.wire import Ack
from telemetry.stores.interface import Store

GROUP_BYTES = 64 * 2**20
"""What one round of inserts takes at most, beside its first request."""


class WaitingFullError(Exception):
    """The store is slower than the senders for now: try again shortly."""


@dataclass(slots=True)
class _Pending:
    tables: Mapping[str, pa.Table]
    size_bytes: int
    done: Future[None] = field(default_factory=Future)


class OtlpWriter:
    """Stores rows of the ``otel_*`` tables, in a thread of its own between :meth:`start` and :meth:`close`."""

    def __init__(self, store: Store, counters: Counters, *, queue_bytes: int, linger_s: float) -> None:
        self._store = store
        self._counters = counters
        self._queue_bytes = queue_bytes
        self._linger_s = linger_s
        self._queue: deque[_Pending] = deque()
        self._queued_bytes = 0
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._write, name="rankscope-otlp", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, tables: Mapping[str, pa.Table]) -> Future[None]:
        """Queue rows, table by table. The future ends when they are stored, or with what the store raised.

        Raises:
            WaitingFullError: at once, when too much waits already, or the writer is closing.
        """
        pending = _Pending(tables, sum(rows.nbytes for rows in tables.values()))
        with self._changed:
            full = self._queue and self._queued_bytes + pending.size_bytes > self._queue_bytes
            if full or self._closing.is_set():
                raise WaitingFullError
            self._queue.append(pending)
            self._queued_bytes += pending.size_bytes
            self._changed.notify()
        for table, rows in tables.items():
            self._counters.received(table, rows.num_rows)
        return pending.done

    def close(self) -> None:
        """Store what is queued, then end. Safe to repeat."""
        self._closing.set()
        with self._changed:
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join()

    def _write(self) -> None:
        while group := self._next_group():
            waiting = [pending for pending in group if pending.done.set_running_or_notify_cancel()]
            try:
                self._insert(group)
            except Exception as error:
                for pending in waiting:
                    pending.done.set_exception(error)
            else:
                for pending in waiting:
                    pending.done.set_result(None)

    def _next_group(self) -> list[_Pending]:
        """What waits, after lingering a little so that more requests share an insert; nothing when closed and empty."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closing.is_set())
        self._closing.wait(self._linger_s)
        group: list[_Pending] = []
        size = 0
        with self._changed:
            while self._queue and (not group or size + self._queue[0].size_bytes <= GROUP_BYTES):
                group.append(self._queue.popleft())
                size += group[-1].size_bytes
            self._queued_bytes -= size
        return group

    def _insert(self, group: list[_Pending]) -> None:
        blocks: dict[str, list[pa.Table]] = {}
        for pending in group:
            for table, rows in pending.tables.items():
                blocks.setdefault(table, []).append(rows)
        for table, rows_of_each in blocks.items():
            rows = pa.concat_tables(rows_of_each)
            began = time.perf_counter()
            self._store.insert(table, rows)
            self._counters.inserted(table, time.perf_counter() - began)
            self._counters.stored(table, Ack(rows=rows.num_rows, duplicates=0))
