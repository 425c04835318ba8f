"""The newest answer about something that goes on changing, worked out in the background."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from ui.dashboard.background import BackgroundAnswers, StillWorking

Answer = TypeVar("Answer")

KEPT = 64
KEPT_BEFORE = 16
"""Answers that newer ones replace as soon as those are ready."""


@dataclass(frozen=True, slots=True)
class Told(Generic[Answer]):
    """An answer, of which state of things it is, and when it was ready."""

    answer: Answer
    freshness: Hashable
    at_s: float


class NewestAnswers(Generic[Answer]):
    """By key. May be called from any thread; no call waits for an answer.

    Args:
        anew_s: how long an answer stands, at least, though things have changed.
        hold: returns once an answer that was asked for may be begun.
    """

    def __init__(
        self, anew_s: float, *, hold: Callable[[], None] | None = None, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._answers = BackgroundAnswers(KEPT, wait_s=0.0)
        self._anew_s = anew_s
        self._hold = hold
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._before: OrderedDict[Hashable, Told[Answer]] = OrderedDict()

    def get(self, key: Hashable, freshness: Hashable, work: Callable[[], Answer]) -> Told[Answer] | None:
        """The newest answer there is, None where there is none yet; a newer one is begun where it is time for it."""

        def later() -> Told[Answer]:
            if self._hold is not None:
                self._hold()
            return Told(work(), freshness, self._clock_s())

        try:
            told = self._answers.get(key, later)
        except StillWorking:
            return self._before.get(key)
        if told.freshness != freshness and self._clock_s() - told.at_s >= self._anew_s:
            self._replace_later(key, told)
        else:
            with self._lock:
                self._before.pop(key, None)
        return told

    def _replace_later(self, key: Hashable, told: Told[Answer]) -> None:
        with self._lock:
            self._before[key] = told
            while len(self._before) > KEPT_BEFORE:
                self._before.popitem(last=False)
        self._answers.forget(key)
