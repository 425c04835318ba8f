"""Groups many small requests into few large inserts, in one writing thread for batches and one for OTLP.

    connections --submit--> [queue, bounded in bytes] --group--> one insert a table --> each request is answered

A batch is acknowledged when the insert that holds its rows has returned (``writer.py``). With one writing thread, the
rows of a rank are stored in the order of their numbers.
"""

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from telemetry.collector.counters import Counters
from telemetry.collector.writer import RowWriter
from telemetry.errors import UnannouncedError, UnreachableError
from telemetry.stores.interface import Store, StoreReader
from telemetry.wire.codec import Ack, Batch

Item = TypeVar("Item")
GROUP_BYTES = 128 * 2**20
"""Largest group of batches, unless one batch is larger."""


class QueueFullError(Exception):
    """The store is slower than the senders at the moment: retry shortly."""


@dataclass(slots=True)
class Waiting(Generic[Item]):
    """A request that waits to be stored, and the future that its sender waits for."""

    item: Item
    size_bytes: int
    done: Future[Any] = field(default_factory=Future)
    awaited: bool = True
    """False if the request was cancelled before its turn. After its turn it cannot be cancelled."""

    def finish(self, outcome: object) -> None:
        """Answer the sender, if it still waits. An exception is raised there."""
        if self.awaited and isinstance(outcome, Exception):
            self.done.set_exception(outcome)
        elif self.awaited:
            self.done.set_result(outcome)


class GroupWriter(ABC, Generic[Item]):
    """A queue that any thread submits to, and a thread that stores its groups, from :meth:`start` to :meth:`close`.

    Args:
        queue_bytes: largest size of the queue, unless one request is larger.
        group_bytes: largest size of a group, unless one request is larger.
        linger_s: how long a group waits for more requests.
        on_change: receives the number of waiting requests and their bytes. Must not block.
    """

    def __init__(
        self,
        name: str,
        *,
        queue_bytes: int,
        group_bytes: int,
        linger_s: float,
        on_change: Callable[[int, int], None] | None = None,
    ) -> None:
        self._queue_bytes = queue_bytes
        self._group_bytes = group_bytes
        self._linger_s = linger_s
        self._on_change = on_change
        self._queue: deque[Waiting[Item]] = deque()
        self._queued_bytes = 0
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Store what is queued, then end. Safe to repeat."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join()

    @abstractmethod
    def _store_group(self, group: list[Waiting[Item]]) -> None:
        """Store a group, and finish each of its requests. Must not raise."""

    def _enqueue(self, item: Item, size_bytes: int) -> "Future[Any]":
        """Queue a request. Returns the future that its sender waits for.

        Raises:
            QueueFullError: at once, if the queue is full or closed.
        """
        waiting = Waiting(item, size_bytes)
        with self._changed:
            full = self._queue and self._queued_bytes + size_bytes > self._queue_bytes
            if full or self._closed:
                raise QueueFullError("too many rows wait to be stored")
            self._queue.append(waiting)
            self._count_queued(size_bytes)
            self._changed.notify()
        return waiting.done

    def _run(self) -> None:
        while group := self._next_group():
            self._store_group(group)

    def _next_group(self) -> list[Waiting[Item]]:
        """The next requests. Waits ``linger_s``, so that more senders share an insert. Empty list: the end."""
        group: list[Waiting[Item]] = []
        size = 0
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closed)
            self._changed.wait_for(
                lambda: self._queued_bytes >= self._group_bytes or self._closed, timeout=self._linger_s
            )
            while self._queue and (not group or size + self._queue[0].size_bytes <= self._group_bytes):
                group.append(self._queue.popleft())
                size += group[-1].size_bytes
                group[-1].awaited = group[-1].done.set_running_or_notify_cancel()
            self._count_queued(-size)
        return group

    def _count_queued(self, added_bytes: int) -> None:
        self._queued_bytes += added_bytes
        if self._on_change is not None:
            self._on_change(len(self._queue), self._queued_bytes)


class Ingest(GroupWriter[Batch]):
    """Stores batches, each row with a ``seq`` exactly once."""

    def __init__(self, store: Store, counters: Counters, *, queue_bytes: int, linger_s: float) -> None:
        super().__init__(
            "rankscope-ingest",
            queue_bytes=queue_bytes,
            group_bytes=GROUP_BYTES,
            linger_s=linger_s,
            on_change=counters.queued,
        )
        self._writer = RowWriter(store, StoreReader(store), counters)
        self._counters = counters

    def submit(self, batch: Batch) -> "Future[Ack]":
        """Queue a batch. The future ends with the acknowledgement, or with an UnreachableError (send the batch again)
        or a RefusedRowsError (never send it again).

        Raises:
            QueueFullError: at once, if the queue is full or closed.
        """
        done = self._enqueue(batch, batch.rows.nbytes)
        self._counters.received(batch.table, batch.rows.num_rows)
        return done

    def _store_group(self, group: list[Waiting[Batch]]) -> None:
        by_table: dict[str, list[Waiting[Batch]]] = {}
        for waiting in group:
            by_table.setdefault(waiting.item.table, []).append(waiting)
        # Ranks are stored first, so that every stored span has a known rank.
        for table in sorted(by_table, key=lambda name: name != "ranks"):
            outcomes = self._writer.store(table, [waiting.item for waiting in by_table[table]])
            for waiting, outcome in zip(by_table[table], outcomes, strict=True):
                if isinstance(outcome, Ack):
                    self._counters.stored(table, outcome)
                # An UnannouncedError is counted by its status, with other answers.
                elif isinstance(outcome, UnreachableError) and not isinstance(outcome, UnannouncedError):
                    self._counters.failed(table)
                waiting.finish(outcome)
