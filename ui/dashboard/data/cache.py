"""Caches of answers, bounded in number and bytes: one for quick answers, and one that computes slow answers later.

The size of an answer is exact for arrays and tables, and estimated for small objects.
"""

import os
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass
from itertools import islice
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import pyarrow as pa

Answer = TypeVar("Answer")

SAMPLE = 64
"""Elements of a long sequence that are measured. The other elements count as their mean."""


def held_bytes(answer: object) -> int:
    """The most bytes that are freed with ``answer``. Memory that several parts share counts once."""
    return _size_of(answer, set())


def _size_of(part: Any, counted: set[int]) -> int:
    while isinstance(part, np.ndarray) and isinstance(part.base, np.ndarray):
        part = part.base  # a view shares the memory of its base
    if part is None or id(part) in counted:
        return 0
    counted.add(id(part))
    if isinstance(part, np.ndarray):
        return int(part.nbytes)
    if isinstance(part, (pa.Table, pa.ChunkedArray, pa.Array, pa.RecordBatch)):
        return int(part.get_total_buffer_size())
    return sys.getsizeof(part) + _size_of_elements(part, counted)


def _size_of_elements(part: Any, counted: set[int]) -> int:
    elements: Iterable[Any] = ()
    if isinstance(part, Mapping):
        elements = part.items()
    elif isinstance(part, (list, tuple, set, frozenset)):
        elements = part
    elif is_dataclass(part) and not isinstance(part, type):
        return sum(_size_of(getattr(part, member.name), counted) for member in fields(part))
    count = len(part) if elements else 0  # an object of another class counts as small
    first = sum(_size_of(element, counted) for element in islice(elements, SAMPLE))
    return first * count // min(count, SAMPLE) if count else 0


@dataclass(slots=True, kw_only=True)
class _Entry:
    version: Hashable
    future: "Future[Any]" = field(default_factory=Future)
    num_bytes: int = 0


class AnswerCache:
    """The least recently used answers by key. Simultaneous requests for one answer share its computation.

    May be called from any thread. A call may block until another call is done. A failure is raised to all callers that
    wait for it, and is not kept.

    Args:
        size: the largest number of answers.
        max_bytes: the largest memory of all answers. The newest answer is kept even if it is larger.
    """

    def __init__(self, size: int, max_bytes: int) -> None:
        self._size = size
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._answers: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._num_bytes = 0

    @property
    def held_bytes(self) -> int:
        """Memory of the answers."""
        with self._lock:
            return self._num_bytes

    def get(self, key: Hashable, work: Callable[[], Answer], version: Hashable = None) -> Answer:
        """The answer under ``key`` if it has this ``version``. Otherwise ``work()`` replaces it."""
        with self._lock:
            entry = self._answers.get(key)
            is_known = entry is not None and entry.version == version
            if entry is None or not is_known:
                self._drop(key)
                entry = self._answers[key] = _Entry(version=version)
            self._answers.move_to_end(key)
            self._drop_oldest()
        if not is_known:
            self._fill(key, entry, work)
        return cast(Answer, entry.future.result())

    def _fill(self, key: Hashable, entry: _Entry, work: Callable[[], Any]) -> None:
        try:
            answer = work()
            num_bytes = held_bytes(answer)
        except BaseException as error:
            with self._lock:
                if self._answers.get(key) is entry:
                    self._drop(key)
            entry.future.set_exception(error)
            return
        entry.future.set_result(answer)
        with self._lock:
            if self._answers.get(key) is entry:
                entry.num_bytes = num_bytes
                self._num_bytes += num_bytes
                self._drop_oldest()

    def _drop_oldest(self) -> None:
        while len(self._answers) > self._size or (self._num_bytes > self._max_bytes and len(self._answers) > 1):
            self._drop(next(iter(self._answers)))

    def _drop(self, key: Hashable) -> None:
        if dropped := self._answers.pop(key, None):
            self._num_bytes -= dropped.num_bytes


WAIT_S = 0.3
"""A request waits this long, so that a quick answer is returned at once. Slow parts follow the page
(``ui/dashboard/serving/first_answer.py``)."""
NICENESS = 10
MAX_BYTES = 64 * 2**20
RETRY_S = 30.0
"""The work is tried again this long after a failure. Until then the failure is raised."""


class StillWorking(Exception):
    """The answer is not ready. When it is, the freshness of the pages that show it changes."""


class _Task(NamedTuple):
    future: "Future[Any]"
    at_s: float


class BackgroundAnswers:
    """Slow answers by key, computed one after the other in a background thread. May be called from any thread.

    If there are more than ``size`` answers and requests, the least recently requested ones are dropped.

    Args:
        size: the largest number of answers.
        max_bytes: the largest memory of all answers. The newest answer is kept even if it is larger.
    """

    def __init__(
        self,
        size: int,
        *,
        max_bytes: int = MAX_BYTES,
        wait_s: float = WAIT_S,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._size = size
        self._max_bytes = max_bytes
        self._num_bytes: dict[Hashable, int] = {}
        self._wait_s = wait_s
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._tasks: OrderedDict[Hashable, _Task] = OrderedDict()
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="background", initializer=_lower_priority)

    def get(self, key: Hashable, work: Callable[[], Answer]) -> Answer:
        """The answer under ``key``. If there is none, ``work()`` is started.

        Raises:
            StillWorking: the answer is not ready.
        """
        future = self._future(key, work)
        wait([future], timeout=self._wait_s)
        if not future.done() or future.cancelled():
            raise StillWorking
        return cast(Answer, future.result())

    @property
    def held_bytes(self) -> int:
        """Memory of the answers."""
        with self._lock:
            return sum(self._num_bytes.values())

    def is_ready(self, key: Hashable) -> bool:
        """Whether an answer or a failure is kept under ``key``."""
        with self._lock:
            return key in self._tasks and self._tasks[key].future.done()

    def forget(self, key: Hashable) -> None:
        """Drop the answer. The next request starts the work again."""
        with self._lock:
            self._drop(key)

    def _future(self, key: Hashable, work: Callable[[], Any]) -> "Future[Any]":
        with self._lock:
            task = self._tasks.get(key)
            if task is None or self._is_old_failure(task):
                task = _Task(self._worker.submit(self._run, key, work), self._clock_s())
                self._tasks[key] = task
            self._tasks.move_to_end(key)
            while len(self._tasks) > self._size:
                oldest, dropped = self._tasks.popitem(last=False)
                self._num_bytes.pop(oldest, None)
                dropped.future.cancel()
        return task.future

    def _run(self, key: Hashable, work: Callable[[], Any]) -> Any:
        answer = work()
        num_bytes = held_bytes(answer)
        with self._lock:
            if key in self._tasks:
                self._num_bytes[key] = num_bytes
            ready = [other for other in self._tasks if other in self._num_bytes and other != key]
            while ready and sum(self._num_bytes.values()) > self._max_bytes:
                self._drop(ready.pop(0))
        return answer

    def _drop(self, key: Hashable) -> None:
        self._num_bytes.pop(key, None)
        self._tasks.pop(key, None)

    def _is_old_failure(self, task: _Task) -> bool:
        failed = task.future.done() and (task.future.cancelled() or task.future.exception() is not None)
        return failed and self._clock_s() - task.at_s > RETRY_S


def _lower_priority() -> None:
    """Give this thread a lower priority than threads that a request waits for."""
    with suppress(OSError, AttributeError):  # only Linux has a niceness for each thread
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
