"""The one thread of a collector that writes: batches in from many connections, out as few large inserts.

    connections --submit--> [queue, bounded] --group--> one insert a table (writer.py) --> acknowledge

A batch is acknowledged when the insert that holds its rows has returned. One thread writes, so that the rows of a rank
are stored in the order of their numbers.
"""

import threading
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field

from telemetry.errors import UnreachableError
from telemetry.ship.counters import Counters
from telemetry.ship.wire import Ack, Batch
from telemetry.ship.writer import Outcome, RowWriter
from telemetry.stores.interface import Store
from telemetry.stores.reader import StoreReader

GROUP_BYTES = 128 * 2**20
"""What one round of inserts takes at most, beside its first batch."""


class QueueFullError(Exception):
    """The store is slower than the agents for now: try again shortly."""


@dataclass(slots=True)
class _Pending:
    batch: Batch
    done: Future[Ack] = field(default_factory=Future)
    awaited: bool = True
    """Nobody cancelled the request before its turn came. From then on nobody can."""


class Ingest:
    """Stores batches, each row with a ``seq`` exactly once."""

    def __init__(self, store: Store, counters: Counters, *, queue_bytes: int, linger_s: float) -> None:
        self._writer = RowWriter(store, StoreReader(store), counters)
        self._counters = counters
        self._queue_bytes = queue_bytes
        self._linger_s = linger_s
        self._queue: deque[_Pending] = deque()
        self._queued_bytes = 0
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._write, name="rankscope-ingest", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, batch: Batch) -> Future[Ack]:
        """Queue a batch. The future ends with what became of it, or an UnreachableError: then send it again; or a
        UsageError: its run's name is taken.

        Raises:
            QueueFullError: at once, when too much waits already, or the writer is closing.
        """
        pending = _Pending(batch)
        with self._changed:
            full = self._queue and self._queued_bytes + batch.rows.nbytes > self._queue_bytes
            if full or self._closing.is_set():
                raise QueueFullError
            self._queue.append(pending)
            self._queued_bytes += batch.rows.nbytes
            self._counters.queued(len(self._queue), self._queued_bytes)
            self._changed.notify()
        self._counters.received(batch.table, batch.rows.num_rows)
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
            by_table: dict[str, list[_Pending]] = {}
            for pending in group:
                by_table.setdefault(pending.batch.table, []).append(pending)
            # Who recorded goes first: then every stored span has a rank that is known.
            for table in sorted(by_table, key=lambda name: name != "ranks"):
                self._store_group(table, by_table[table])

    def _next_group(self) -> list[_Pending]:
        """What waits, after lingering a little so that more hosts share an insert; nothing when closed and empty."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closing.is_set())
            self._changed.wait_for(self._has_enough, timeout=self._linger_s)
        group: list[_Pending] = []
        size = 0
        with self._changed:
            while self._queue and (not group or size + self._queue[0].batch.rows.nbytes <= GROUP_BYTES):
                group.append(self._queue.popleft())
                size += group[-1].batch.rows.nbytes
                group[-1].awaited = group[-1].done.set_running_or_notify_cancel()
            self._queued_bytes -= size
            self._counters.queued(len(self._queue), self._queued_bytes)
        return group

    def _has_enough(self) -> bool:
        return self._queued_bytes >= GROUP_BYTES or self._closing.is_set()

    def _store_group(self, table: str, group: list[_Pending]) -> None:
        outcomes = self._writer.store(table, [pending.batch for pending in group])
        for pending, outcome in zip(group, outcomes, strict=True):
            self._count(table, outcome)
            if not pending.awaited:
                continue
            if isinstance(outcome, Ack):
                pending.done.set_result(outcome)
            else:
                pending.done.set_exception(outcome)

    def _count(self, table: str, outcome: Outcome) -> None:
        match outcome:
            case Ack():
                self._counters.stored(table, outcome)
            case UnreachableError():
                self._counters.failed(table)
