"""Slow answers, computed one after the other in a background thread, so that no page blocks."""

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar, cast

from ui.dashboard.cache import held_bytes

Answer = TypeVar("Answer")

WAIT_S = 0.3
"""A quick answer comes at once; that one is slow comes with the page (``ui/dashboard/first_answer.py``)."""
NICENESS = 10
MAX_BYTES = 64 * 2**20
RETRY_S = 30.0
"""A failure is told for so long before the work is tried again."""


class StillWorking(Exception):
    """The answer is not there yet. Whoever shows it is told by the next look at what has arrived."""


class _Asked(NamedTuple):
    future: "Future[Any]"
    at_s: float


class BackgroundAnswers:
    """The newest answers by key. May be called from any thread.

    One piece of work runs at a time, so that many pages cost no more than one; what nobody has asked for lately is
    forgotten before it has begun.

    Args:
        size: the most answers.
        max_bytes: the most memory that answers take. The newest answer is kept even if it takes more by itself.
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
        self._asked: OrderedDict[Hashable, _Asked] = OrderedDict()
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="background", initializer=_step_back)

    def get(self, key: Hashable, work: Callable[[], Answer]) -> Answer:
        """The answer kept under ``key``, else that of ``work()``, which is begun.

        Raises:
            StillWorking: it is not there yet.
        """
        future = self._begun(key, work)
        wait([future], timeout=self._wait_s)
        if not future.done() or future.cancelled():
            raise StillWorking
        return cast(Answer, future.result())

    @property
    def held_bytes(self) -> int:
        """Memory that the answers take."""
        with self._lock:
            return sum(self._num_bytes.values())

    def is_ready(self, key: Hashable) -> bool:
        """Whether an answer, or a failure, is kept under ``key``."""
        with self._lock:
            return key in self._asked and self._asked[key].future.done()

    def forget(self, key: Hashable) -> None:
        """Drop the answer: whoever asks next begins anew."""
        with self._lock:
            self._drop(key)

    def _begun(self, key: Hashable, work: Callable[[], Any]) -> "Future[Any]":
        with self._lock:
            asked = self._asked.get(key)
            if asked is None or self._is_old_failure(asked):
                asked = _Asked(self._worker.submit(self._worked_out, key, work), self._clock_s())
                self._asked[key] = asked
            self._asked.move_to_end(key)
            while len(self._asked) > self._size:
                oldest, dropped = self._asked.popitem(last=False)
                self._num_bytes.pop(oldest, None)
                dropped.future.cancel()
        return asked.future

    def _worked_out(self, key: Hashable, work: Callable[[], Any]) -> Any:
        answer = work()
        num_bytes = held_bytes(answer)
        with self._lock:
            if key in self._asked:
                self._num_bytes[key] = num_bytes
            ready = [one for one in self._asked if one in self._num_bytes and one != key]
            while ready and sum(self._num_bytes.values()) > self._max_bytes:
                self._drop(ready.pop(0))
        return answer

    def _drop(self, key: Hashable) -> None:
        self._num_bytes.pop(key, None)
        self._asked.pop(key, None)

    def _is_old_failure(self, asked: _Asked) -> bool:
        failed = asked.future.done() and (asked.future.cancelled() or asked.future.exception() is not None)
        return failed and self._clock_s() - asked.at_s > RETRY_S


def _step_back() -> None:
    """Let threads that somebody waits for go first."""
    with suppress(OSError, AttributeError):  # Linux alone knows the niceness of a thread
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
