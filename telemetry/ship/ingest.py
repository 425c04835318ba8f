"""The one writer of the store: batches in from many connections, out as few large inserts.

    connections --submit--> [queue, bounded] --group--> trim by the ledger --> one insert a table --> acknowledge

A batch is acknowledged when the insert that holds its rows has returned. One thread writes, so that the rows of a rank
are stored in the order of their numbers.
"""

import threading
import time
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field

import pyarrow as pa

from telemetry.errors import UnreachableError
from telemetry.ship.counters import Counters
from telemetry.ship.ledger import Ledger
from telemetry.ship.openings import find_taken
from telemetry.ship.wire import Ack, Batch
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
        self._store = store
        self._reader = StoreReader(store)
        self._ledger = Ledger(self._reader)
        self._counters = counters
        self._queue_bytes = queue_bytes
        self._linger_s = linger_s
        self._queue: deque[_Pending] = deque()
        self._queued_bytes = 0
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._writer = threading.Thread(target=self._write, name="rankscope-ingest", daemon=True)

    def start(self) -> None:
        self._writer.start()

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
        if self._writer.is_alive():
            self._writer.join()

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
        self._closing.wait(self._linger_s)
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

    def _store_group(self, table: str, group: list[_Pending]) -> None:
        try:
            group = self._without_taken(group) if table == "ranks" else group
            fresh = [self._ledger.trim(pending.batch) for pending in group]
            blocks = [_owned(pending.batch, rows) for pending, rows in zip(group, fresh, strict=True) if rows.num_rows]
            if blocks:
                self._insert(table, pa.concat_tables(blocks))
        except Exception as error:
            self._fail(group, error)
            return
        self._ledger.prune()
        for pending, rows in zip(group, fresh, strict=True):
            ack = Ack(rows=rows.num_rows, duplicates=pending.batch.rows.num_rows - rows.num_rows)
            self._counters.stored(table, ack)
            if pending.awaited:
                pending.done.set_result(ack)

    def _without_taken(self, group: list[_Pending]) -> list[_Pending]:
        """The batches whose run is theirs; the others are told."""
        refusals = find_taken(self._reader, [pending.batch for pending in group])
        for pending, refusal in zip(group, refusals, strict=True):
            if refusal is not None and pending.awaited:
                pending.done.set_exception(refusal)
        return [pending for pending, refusal in zip(group, refusals, strict=True) if refusal is None]

    def _insert(self, table: str, rows: pa.Table) -> None:
        began = time.perf_counter()
        self._store.insert(table, rows)
        self._counters.inserted(table, time.perf_counter() - began)

    def _fail(self, group: list[_Pending], error: Exception) -> None:
        """The rows may or may not be there: trust no mark of theirs, and let the agents send them again."""
        reason = error if isinstance(error, UnreachableError) else _unexpected(error)
        for pending in group:
            self._ledger.forget(pending.batch)
            self._counters.failed(pending.batch.table)
            if pending.awaited:
                pending.done.set_exception(reason)


def _owned(batch: Batch, rows: pa.Table) -> pa.Table:
    """``rows`` with the columns that say whose they are."""
    return (
        rows.replace_schema_metadata(None)
        .append_column("run_id", pa.repeat(batch.run_id, rows.num_rows))
        .append_column("attempt", pa.repeat(pa.scalar(batch.attempt, pa.uint32()), rows.num_rows))
    )


def _unexpected(error: Exception) -> UnreachableError:
    """A fault of ours must not end the writer: the next batch may be fine."""
    return UnreachableError(
        f"storing failed: {type(error).__name__}: {error}", hint="the collector's log says more; nothing is lost"
    )
