"""Groups many small requests into few large ones: the queue before each thread that stores.

connections --submit--> [bounded in bytes] --next_group--> one thread stores the group, and answers each request
"""

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")


class QueueFullError(Exception):
    """The store is slower than the senders for now: try again shortly."""


@dataclass(slots=True)
class Waiting(Generic[Item]):
    """A request that waits to be stored, and the future that its sender waits for."""

    item: Item
    size_bytes: int
    done: Future[Any] = field(default_factory=Future)
    awaited: bool = True
    """Whether the request was not cancelled before its turn. From now on it cannot be cancelled."""

    def finish(self, outcome: object) -> None:
        """Answer the sender, if it still waits. An exception is raised there."""
        if not self.awaited:
            return
        if isinstance(outcome, Exception):
            self.done.set_exception(outcome)
        else:
            self.done.set_result(outcome)


def _ignore(_: int, __: int) -> None:
    """Counts nothing."""


class GroupQueue(Generic[Item]):
    """Of any number of threads that submit, and one that takes groups.

    Args:
        queue_bytes: what waits at most; one request always may.
        group_bytes: what a group holds at most; one request always may.
        linger_s: how long a group waits for more to come.
        on_change: told how many requests wait, and their bytes. Must not block.
    """

    def __init__(
        self, *, queue_bytes: int, group_bytes: int, linger_s: float, on_change: Callable[[int, int], None] = _ignore
    ) -> None:
        self._queue_bytes = queue_bytes
        self._group_bytes = group_bytes
        self._linger_s = linger_s
        self._on_change = on_change
        self._queue: deque[Waiting[Item]] = deque()
        self._queued_bytes = 0
        self._closed = False
        self._changed = threading.Condition()

    def submit(self, item: Item, size_bytes: int) -> "Future[Any]":
        """Queue a request; how it ended.

        Raises:
            QueueFullError: at once, when too much waits already, or the queue is closed.
        """
        waiting = Waiting(item, size_bytes)
        with self._changed:
            full = self._queue and self._queued_bytes + size_bytes > self._queue_bytes
            if full or self._closed:
                raise QueueFullError
            self._queue.append(waiting)
            self._queued_bytes += size_bytes
            self._on_change(len(self._queue), self._queued_bytes)
            self._changed.notify()
        return waiting.done

    def next_group(self) -> list[Waiting[Item]]:
        """What waits, after lingering a little so that more senders share an insert; nothing when closed and empty."""
        group: list[Waiting[Item]] = []
        size = 0
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closed)
            self._changed.wait_for(self._has_enough, timeout=self._linger_s)
            while self._queue and (not group or size + self._queue[0].size_bytes <= self._group_bytes):
                group.append(self._queue.popleft())
                size += group[-1].size_bytes
                group[-1].awaited = group[-1].done.set_running_or_notify_cancel()
            self._queued_bytes -= size
            self._on_change(len(self._queue), self._queued_bytes)
        return group

    def close(self) -> None:
        """No more requests; those that wait are still given out. Safe to repeat."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _has_enough(self) -> bool:
        return self._queued_bytes >= self._group_bytes or self._closed
