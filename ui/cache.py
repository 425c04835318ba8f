"""Answers kept for a while: the newest so many, each worked out once however many ask at the same time."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any, TypeVar, cast

Answer = TypeVar("Answer")


class AnswerCache:
    """Least recently used answers by key. May be called from any thread; a call may block on another's work.

    A failure is raised to all who wait for it and is not kept.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._answers: OrderedDict[Hashable, Future[Any]] = OrderedDict()

    def get(self, key: Hashable, work: Callable[[], Answer]) -> Answer:
        """The answer kept under ``key``, else that of ``work()``, kept from now on."""
        with self._lock:
            kept = self._answers.get(key)
            if kept is not None:
                self._answers.move_to_end(key)
            else:
                mine: Future[Any] = Future()
                self._answers[key] = mine
                while len(self._answers) > self._size:
                    self._answers.popitem(last=False)
        if kept is not None:
            return cast(Answer, kept.result())
        self._fill(key, mine, work)
        return cast(Answer, mine.result())

    def _fill(self, key: Hashable, future: "Future[Any]", work: Callable[[], Answer]) -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            with self._lock:
                if self._answers.get(key) is future:
                    del self._answers[key]
            future.set_exception(error)
