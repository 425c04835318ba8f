"""The findings of a run: computed at once for a small run, in the background for a large one.

While a newer report is computed in the background, pages get the previous one.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from diagnose.model.load import DEFAULT_STEPS, load_view
from diagnose.model.view import RunView
from diagnose.pipeline import Report, diagnose_view
from ui.dashboard.background import BackgroundAnswers, StillWorking
from ui.dashboard.cache import AnswerCache
from ui.dashboard.data.asking import KEPT_ANSWERS, Asking
from ui.dashboard.records import RunSummary

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


KEPT_VIEWS = 4
"""Each holds all operations of 200 steps of a small run."""
VIEWS_BYTES = 128 * 2**20
RANK_STEPS_AT_ONCE = 20_000
"""Ranks times steps that a page waits for the detectors to look at: about half a second."""
REPORT_AGE_S = 30.0
"""What detectors say of a larger run that goes on stands so long, at least."""
REPORT_AFTER_S = 2.0
"""They begin so long after a part of a page asked for it last: they keep the processor busy for seconds, and a page is
being drawn."""
LATEST_AFTER_S = 10.0
"""However many pages are."""


class Reports:
    """By run and attempt. Every method may block and may be called from any thread."""

    def __init__(self, asking: Asking, rank_steps_at_once: int = RANK_STEPS_AT_ONCE) -> None:
        self._asking = asking
        self._rank_steps_at_once = rank_steps_at_once
        self._views = AnswerCache(KEPT_VIEWS, VIEWS_BYTES)
        self._large: NewestAnswers[Report] = NewestAnswers(REPORT_AGE_S, hold=self._wait_for_pages)
        self._asked_s = 0.0
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[str, int], Report] = OrderedDict()

    def of(self, run: RunSummary) -> Report | None:
        """What the detectors say about the newest steps; why the run stands still is ``Reads.hang``.

        Of a large run they say it when they are ready: until then what they said before, or None.
        """
        report: Report | None
        if self._is_large(run):
            self._asked_s = time.monotonic()
            told = self._told(run)
            report = None if told is None else told.answer
        else:
            report = self._asking.kept(run, "report", lambda: diagnose_view(self._newest_view(run)))
        if report is not None:
            with self._lock:
                self._known[run.run_id, run.attempt] = report
                self._known.move_to_end((run.run_id, run.attempt))
                while len(self._known) > KEPT_ANSWERS:
                    self._known.popitem(last=False)
        return report

    def known(self, attempt: tuple[str, int]) -> Report | None:
        """The newest report that anybody asked for; None where nobody did. Asks nothing."""
        return self._known.get(attempt)

    def seen(self, run: RunSummary) -> float | None:
        """Differs once :meth:`of` says something else of a large run, though nothing may have arrived."""
        told = self._told(run) if self._is_large(run) else None
        return None if told is None else told.at_s

    def newest_view(self, run: RunSummary) -> RunView | None:
        """What :meth:`of` is about; None of a large run, whose view is not kept."""
        return None if self._is_large(run) else self._newest_view(run)

    def _newest_view(self, run: RunSummary) -> RunView:
        version = run.last_step, run.last_ns
        return self._views.get((run.run_id, run.attempt), lambda: self._loaded(run), version=version)

    def _diagnosed(self, run: RunSummary) -> Report:
        return diagnose_view(self._loaded(run))

    def _wait_for_pages(self) -> None:
        wanted_s = time.monotonic()
        latest_s = wanted_s + LATEST_AFTER_S
        while (left_s := min(max(wanted_s, self._asked_s) + REPORT_AFTER_S, latest_s) - time.monotonic()) > 0:
            time.sleep(left_s)

    def _loaded(self, run: RunSummary) -> RunView:
        return load_view(self._asking.reader_of(run), run.run_id, run.attempt)

    def _told(self, run: RunSummary) -> Told[Report] | None:
        freshness = run.last_step, run.last_ns
        return self._large.get((run.run_id, run.attempt), freshness, lambda: self._diagnosed(run))

    def _is_large(self, run: RunSummary) -> bool:
        num_steps = min(DEFAULT_STEPS, run.last_step - run.first_step + 1)
        return run.num_ranks * num_steps > self._rank_steps_at_once
