"""Runs the rounds of many agents in a few threads, each when it is due.

A thread for each agent would be closer to a fleet, where each agent has a host. But hundreds of threads that can run
slow down each other and the collector, which shares the machine with them.
"""

import heapq
import itertools
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

Task = Callable[[], float | None]
"""Returns the seconds until it is due again; None: never."""


class Rota:
    """Tasks, a thread that waits for the next one, and the threads that run them."""

    def __init__(self, num_threads: int) -> None:
        self._due: list[tuple[float, int, Task]] = []
        self._numbers = itertools.count()
        self._running = 0
        self._ends = False
        self._changed = threading.Condition()
        self._pool = ThreadPoolExecutor(num_threads)
        self._thread = threading.Thread(target=self._hand_out)
        self.late_s: list[float] = []
        """How long each run of a task waited for a thread."""

    def start(self, tasks: Iterable[tuple[float, Task]]) -> None:
        """Start with these tasks, each with the seconds until it is due."""
        for wait_s, task in tasks:
            self._push(wait_s, task)
        self._thread.start()

    def end(self, tasks: Iterable[Task]) -> None:
        """Drop all tasks once those that run have ended. Run these instead, at once, and wait until none is left."""
        with self._changed:
            self._changed.wait_for(self._is_idle)
            self._due.clear()
            for task in tasks:
                self._push(0.0, task)
            self._ends = True
            self._changed.notify_all()
        self._thread.join()
        self._pool.shutdown()

    def _is_idle(self) -> bool:
        self._due.clear()
        return not self._running

    def _push(self, wait_s: float, task: Task) -> None:
        with self._changed:
            heapq.heappush(self._due, (time.monotonic() + wait_s, next(self._numbers), task))
            self._changed.notify_all()

    def _hand_out(self) -> None:
        with self._changed:
            while self._due or self._running or not self._ends:
                wait_s = self._due[0][0] - time.monotonic() if self._due else None
                if wait_s is not None and wait_s <= 0:
                    due_s, _, task = heapq.heappop(self._due)
                    self._running += 1
                    self._pool.submit(self._run, due_s, task)
                else:
                    self._changed.wait(wait_s)

    def _run(self, due_s: float, task: Task) -> None:
        self.late_s.append(time.monotonic() - due_s)
        wait_s = task()
        with self._changed:
            self._running -= 1
            if wait_s is not None:
                self._push(wait_s, task)
            self._changed.notify_all()
