"""The findings of a run, and its verdict if it stalls. For a large run they are computed in the background.

While a newer report is computed in the background, pages get the previous one.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np

from diagnose.findings import Finding
from diagnose.hang.stored import stored_verdict
from diagnose.hang.verdict import HangVerdict, hang_finding
from diagnose.model.chosen_steps import DEFAULT_STEPS
from diagnose.model.compute_time import WORK_STAGES
from diagnose.model.load import load_view
from diagnose.model.view import RunView, Work
from diagnose.pipeline import Report, diagnose_view
from telemetry.errors import UnreadableError
from telemetry.stages import Stage
from telemetry.stores.interface import Reader
from telemetry.stores.queries import EvidenceCount
from ui.dashboard.data.asking import KEPT_ANSWERS, StoreQueries
from ui.dashboard.data.cache import AnswerCache, BackgroundAnswers, StillWorking
from ui.dashboard.data.settings import USUAL
from ui.dashboard.records import Ints, RunFacts, RunSummary, StoredEvidence

Answer = TypeVar("Answer")

KEPT = 64
KEPT_PREVIOUS = 16
"""Previous answers that are kept until newer ones are ready."""


@dataclass(frozen=True, slots=True)
class Dated(Generic[Answer]):
    """An answer, the freshness of its data, and when it was ready."""

    answer: Answer
    freshness: Hashable
    at_s: float


class NewestAnswers(Generic[Answer]):
    """The newest answer by key. May be called from any thread. No call waits for an answer.

    Args:
        min_age_s: an answer is kept at least this long, even if its data has changed.
        hold: called before the work starts. It returns when the work may start.
    """

    def __init__(
        self, min_age_s: float, *, hold: Callable[[], None] | None = None, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._answers = BackgroundAnswers(KEPT, wait_s=0.0)
        self._min_age_s = min_age_s
        self._hold = hold
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._previous: OrderedDict[Hashable, Dated[Answer]] = OrderedDict()

    def get(self, key: Hashable, freshness: Hashable, work: Callable[[], Answer]) -> Dated[Answer] | None:
        """The newest answer, or None if there is none yet. Starts ``work()`` if a newer one is due."""

        def later() -> Dated[Answer]:
            if self._hold is not None:
                self._hold()
            return Dated(work(), freshness, self._clock_s())

        try:
            newest = self._answers.get(key, later)
        except StillWorking:
            return self._previous.get(key)
        is_due = newest.freshness != freshness and self._clock_s() - newest.at_s >= self._min_age_s
        with self._lock:
            if is_due:
                self._previous[key] = newest
                while len(self._previous) > KEPT_PREVIOUS:
                    self._previous.popitem(last=False)
            else:
                self._previous.pop(key, None)
        if is_due:
            self._answers.forget(key)
        return newest


KEPT_VERDICTS = 8
"""Number of verdicts that are kept. Each holds all evidence of its run."""
VERDICTS_BYTES = 64 * 2**20
KEPT_STALLS = 256
"""Number of findings of stalls that are kept for the list of runs."""
STALLS_BYTES = 4 * 2**20


class StallQueries(StoreQueries):
    """Queries about stalls. Every method may block and may be called from any thread.

    Args:
        ranks_judged_at_once: a page waits for the verdict of a job with at most this many ranks. The verdict of a
            larger job is computed in the background.
    """

    def __init__(
        self,
        reader: Reader,
        wall_s: Callable[[], float] = time.time,
        ranks_judged_at_once: int = USUAL.ranks_judged_at_once,
    ) -> None:
        super().__init__(reader, wall_s)
        self._verdicts = AnswerCache(KEPT_VERDICTS, VERDICTS_BYTES)
        self._stalls = AnswerCache(KEPT_STALLS, STALLS_BYTES)
        self._large_verdicts: NewestAnswers[HangVerdict | None] = NewestAnswers(0.0)
        self._ranks_judged_at_once = ranks_judged_at_once

    def stored_evidence(self, run: RunSummary) -> StoredEvidence:
        """Which evidence of a stall is stored. It can change while the newest step and time of the run do not."""
        rows = self.ask_all_runs(EvidenceCount(**run.key)).to_pylist()
        return StoredEvidence(**rows[0]) if rows else StoredEvidence(num_rows=0, newest_ns=0)

    def hang(self, facts: RunFacts) -> HangVerdict | None:
        """The verdict on a stall of an attempt. None without a stall, or if the job has continued.

        Raises:
            StillWorking: the evidence of a large job is being read.
        """
        run = facts.summary
        evidence = self.stored_evidence(run)
        if not evidence.num_rows:
            return None
        # A completed step or the end of a rank can change the verdict.
        freshness = run.last_step, run.last_ns, evidence, run.heard.has_ended
        return self._verdict((run.run_id, run.attempt), freshness, facts.topology.world_size)

    def stall(self, attempt: tuple[str, int], freshness: Hashable, num_ranks: int) -> Finding | None:
        """The finding of :meth:`hang` for the list of runs, kept until ``freshness`` changes. It is also None if the
        evidence is unreadable, or is still being read."""

        def find() -> Finding | None:
            verdict = self._verdict(attempt, freshness, num_ranks)
            return None if verdict is None else hang_finding(verdict)

        with suppress(StillWorking, UnreadableError):
            return self._stalls.get(attempt, find, version=freshness)
        return None

    def _verdict(self, attempt: tuple[str, int], freshness: Hashable, num_ranks: int) -> HangVerdict | None:
        def judge() -> HangVerdict | None:
            return stored_verdict(self._reader, *attempt)

        if num_ranks <= self._ranks_judged_at_once:
            return self._verdicts.get(attempt, judge, version=freshness)
        newest = self._large_verdicts.get(attempt, freshness, judge)
        if newest is None:
            raise StillWorking
        return newest.answer


KEPT_VIEWS = 4
"""Number of views that are kept. Each holds all operations of 200 steps of a small run."""
VIEWS_BYTES = 128 * 2**20
REPORT_AGE_S = 30.0
"""The report of a larger, live run is kept at least this long."""
REPORT_AFTER_S = 2.0
"""Detectors of a larger run start this long after the last request for the report. They use the processor for seconds,
and the page is drawn first."""
LATEST_AFTER_S = 10.0
"""Detectors start after this time even if pages are still drawn."""
KEPT_WORK = 4
"""Number of large runs whose compute time is kept. 200 steps of 12,288 ranks take 39 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExaminedWork:
    """The compute time that the detectors have examined."""

    steps: Ints
    """Ascending."""
    work: Mapping[Stage, Work]
    """[steps, ranks]"""

    def has(self, steps: Ints) -> bool:
        return bool(np.isin(steps, self.steps).all())


class Reports:
    """Reports by run and attempt. Every method may block and may be called from any thread."""

    def __init__(self, queries: StoreQueries, rank_steps_at_once: int = USUAL.rank_steps_at_once) -> None:
        self._queries = queries
        self._rank_steps_at_once = rank_steps_at_once
        self._views = AnswerCache(KEPT_VIEWS, VIEWS_BYTES)
        self._large: NewestAnswers[Report] = NewestAnswers(REPORT_AGE_S, hold=self._wait_for_pages)
        self._work: OrderedDict[tuple[str, int], ExaminedWork] = OrderedDict()
        self._requested_s = 0.0
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[str, int], Report] = OrderedDict()

    def of(self, run: RunSummary) -> Report | None:
        """The findings of the newest steps, without stalls (``Reads.hang``).

        For a large run: the newest report that is ready, or None.
        """
        report: Report | None
        if self._is_large(run):
            self._requested_s = time.monotonic()
            newest = self._newest_large(run)
            report = None if newest is None else newest.answer
        else:
            report = self._queries.cached(run, "report", lambda: diagnose_view(self._newest_view(run)))
        if report is not None:
            with self._lock:
                self._known[run.run_id, run.attempt] = report
                self._known.move_to_end((run.run_id, run.attempt))
                while len(self._known) > KEPT_ANSWERS:
                    self._known.popitem(last=False)
        return report

    def known(self, attempt: tuple[str, int]) -> Report | None:
        """The newest report that was requested before. Sends no query."""
        return self._known.get(attempt)

    def freshness(self, run: RunSummary) -> float | None:
        """A value that changes when a newer report of a large run is ready. None if no report is ready, or for a small
        run."""
        newest = self._newest_large(run) if self._is_large(run) else None
        return None if newest is None else newest.at_s

    def newest_view(self, run: RunSummary) -> RunView | None:
        """The view that the report of :meth:`of` is based on. None for a large run, whose view is not kept."""
        return None if self._is_large(run) else self._newest_view(run)

    def newest_work(self, run: RunSummary) -> ExaminedWork | None:
        """The compute time that the newest report is based on. None until the report of a large run is ready."""
        if self._is_large(run):
            return self._work.get((run.run_id, run.attempt))
        view = self._newest_view(run)
        return ExaminedWork(steps=view.steps, work=view.work)

    def _newest_view(self, run: RunSummary) -> RunView:
        version = run.last_step, run.last_ns
        return self._views.get((run.run_id, run.attempt), lambda: self._load(run), version=version)

    def _wait_for_pages(self) -> None:
        requested_s = time.monotonic()
        latest_s = requested_s + LATEST_AFTER_S
        while (left_s := min(max(requested_s, self._requested_s) + REPORT_AFTER_S, latest_s) - time.monotonic()) > 0:
            time.sleep(left_s)

    def _load(self, run: RunSummary) -> RunView:
        return load_view(self._queries.reader_of(run), run.run_id, run.attempt)

    def _newest_large(self, run: RunSummary) -> Dated[Report] | None:
        freshness = run.last_step, run.last_ns
        return self._large.get((run.run_id, run.attempt), freshness, lambda: self._diagnose(run))

    def _diagnose(self, run: RunSummary) -> Report:
        view = self._load(run)
        work = {stage: replace(each, each_ns=None) for stage, each in view.work.items() if stage in WORK_STAGES}
        with self._lock:
            self._work[run.run_id, run.attempt] = ExaminedWork(steps=view.steps, work=work)
            self._work.move_to_end((run.run_id, run.attempt))
            while len(self._work) > KEPT_WORK:
                self._work.popitem(last=False)
        return diagnose_view(view)

    def _is_large(self, run: RunSummary) -> bool:
        num_steps = min(DEFAULT_STEPS, run.last_step - run.first_step + 1)
        return run.num_ranks * num_steps > self._rank_steps_at_once
