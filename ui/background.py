"""Answers that take long: worked out one after the other in a thread of their own, so that pages never stand still."""

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar, cast

Answer = TypeVar("Answer")

WAIT_S = 0.3
"""A quick answer comes at once; that one is slow comes with the page (``ui/first_answer.py``)."""
NICENESS = 10
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
    """

    def __init__(self, size: int, *, wait_s: float = WAIT_S, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._size = size
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

    def is_ready(self, key: Hashable) -> bool:
        """Whether an answer, or a failure, is kept under ``key``."""
        with self._lock:
            return key in self._asked and self._asked[key].future.done()

    def forget(self, key: Hashable) -> None:
        """Drop the answer: whoever asks next begins anew."""
        with self._lock:
            self._asked.pop(key, None)

    def _begun(self, key: Hashable, work: Callable[[], Any]) -> "Future[Any]":
        with self._lock:
            asked = self._asked.get(key)
            if asked is None or self._is_old_failure(asked):
                asked = _Asked(self._worker.submit(work), self._clock_s())
                self._asked[key] = asked
            self._asked.move_to_end(key)
            while len(self._asked) > self._size:
                self._asked.popitem(last=False)[1].future.cancel()
        return asked.future

    def _is_old_failure(self, asked: _Asked) -> bool:
        failed = asked.future.done() and (asked.future.cancelled() or asked.future.exception() is not None)
        return failed and self._clock_s() - asked.at_s > RETRY_S


def _step_back() -> None:
    """Let threads that somebody waits for go first."""
    with suppress(OSError, AttributeError):  # Linux alone knows the niceness of a thread
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
