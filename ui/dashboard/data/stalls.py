"""Verdicts over stalls: which rank delays a job, computed once for all pages and kept until new evidence arrives."""

import time
from collections.abc import Callable, Hashable
from contextlib import suppress

from diagnose.findings import Finding
from diagnose.hang.stored import stored_verdict
from diagnose.hang.verdict import HangVerdict, hang_finding
from telemetry.errors import UnreadableError
from telemetry.stores.interface import Reader
from telemetry.stores.queries import EvidenceCount
from ui.dashboard.background import StillWorking
from ui.dashboard.cache import AnswerCache
from ui.dashboard.data.asking import Asking
from ui.dashboard.data.reports import NewestAnswers
from ui.dashboard.records import EvidenceSeen, RunFacts, RunSummary

KEPT_VERDICTS = 8
"""Each holds all evidence of its run."""
VERDICTS_BYTES = 64 * 2**20
KEPT_STALLS = 256
"""Findings of stalls in the list of runs."""
STALLS_BYTES = 4 * 2**20
RANKS_JUDGED_AT_ONCE = 1024
"""Ranks whose evidence of a stall a page waits for."""


class StallReads(Asking):
    """Queries about stalls. Every method may block and may be called from any thread.

    Args:
        ranks_judged_at_once: a page waits for the verdict of a job with up to so many ranks. The verdict of a larger
            job is computed in the background.
    """

    def __init__(
        self,
        reader: Reader,
        wall_s: Callable[[], float] = time.time,
        ranks_judged_at_once: int = RANKS_JUDGED_AT_ONCE,
    ) -> None:
        super().__init__(reader, wall_s)
        self._verdicts = AnswerCache(KEPT_VERDICTS, VERDICTS_BYTES)
        self._stalls = AnswerCache(KEPT_STALLS, STALLS_BYTES)
        self._large_verdicts: NewestAnswers[HangVerdict | None] = NewestAnswers(0.0)
        self._ranks_judged_at_once = ranks_judged_at_once

    def evidence_seen(self, run: RunSummary) -> EvidenceSeen:
        """How much evidence of a stall agents have left. It comes without a step or a stamp of the run moving."""
        query = EvidenceCount(run_id=run.run_id, attempt=run.attempt)
        rows = self.ask_of_all(query).to_pylist()
        return EvidenceSeen(**rows[0]) if rows else EvidenceSeen(num_rows=0, newest_ns=0)

    def hang(self, facts: RunFacts) -> HangVerdict | None:
        """Who holds an attempt up, or held it up until it ended; None where no stall is known, or it went on since.

        Raises:
            StillWorking: the evidence of a large job is being read.
        """
        run = facts.summary
        seen = self.evidence_seen(run)
        if not seen.num_rows:
            return None
        # A step that completes, or the end of a rank, may change the verdict.
        freshness = run.last_step, run.last_ns, seen, run.heard.has_ended
        return self._verdict((run.run_id, run.attempt), freshness, facts.topology.world_size)

    def stall(self, attempt: tuple[str, int], freshness: Hashable, num_ranks: int) -> Finding | None:
        """The finding of :meth:`hang`, for a list of many runs: kept until ``freshness`` changes. None also where the
        evidence of a large job is being read, or cannot be read."""

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
