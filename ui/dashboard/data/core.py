"""The queries about a run that several pages share. They return records."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from diagnose.findings import StepWindow
from diagnose.model.host_clocks import load_clocks
from diagnose.model.load import load_view
from diagnose.model.run_state import Heard, state_of
from diagnose.model.view import RunView
from telemetry.clocks.align_table import ClockTable
from telemetry.errors import UnknownRunError
from telemetry.printable import one_line
from telemetry.records import topology_of
from telemetry.stages import STAGE_BY_CODE, Stage
from telemetry.stores.interface import Query, Reader
from telemetry.stores.queries import (
    Heartbeats,
    Marks,
    Ranks,
    RunBeats,
    Runs,
    RunStalls,
    RunSteps,
    SampleCurves,
    Samples,
    Spans,
    StageCounts,
    StoredRuns,
)
from ui.dashboard.background import BackgroundAnswers
from ui.dashboard.cache import AnswerCache
from ui.dashboard.columns import (
    ints,
    places,
    rank_states,
    series_by_metric,
    span_columns,
    step_times,
    words,
)
from ui.dashboard.data.reports import RANK_STEPS_AT_ONCE, Reports
from ui.dashboard.data.stalls import RANKS_JUDGED_AT_ONCE, StallReads
from ui.dashboard.gpu_price import GpuPrice
from ui.dashboard.one_clock import OneClock, on_one_clock
from ui.dashboard.records import (
    MarkRow,
    Places,
    RankState,
    RunFacts,
    RunSummary,
    Series,
    SpanColumns,
    StepTimes,
)
from ui.dashboard.stage_times import MAX_CELLS, MAX_OWN_OPERATIONS
from ui.dashboard.view_state import StepRange, ViewState

KEPT_ANALYSES = 16
"""Short analyses, and as many of those that take seconds."""
ANALYSES_BYTES = 64 * 2**20
MAX_OPERATIONS = 6_000_000
"""Of one analysis. An estimate of what a page may cost: seconds, and about a gigabyte."""
METRICS = ("loss", "tokens-per-second", "mfu")
SHOWN_NAME = 80
"""Characters of a run's name in a message: an address may hold any text."""
MAX_SAMPLES, SAMPLES_A_COLUMN = 1_500, 5
"""Of a metric: what a curve shows of a run, and of a column of its steps."""
MAX_LANE = 2_000
"""Spans of one rank and stream in a step; of more the longest are asked for."""


class Reads(StallReads):
    """Answers to what pages ask. Every method may block and may be called from any thread.

    Raises:
        UnknownRunError: the view names a run that is not stored.
        UnreachableError: the store or the collector does not answer.
    """

    def __init__(
        self,
        reader: Reader,
        wall_s: Callable[[], float] = time.time,
        *,
        max_cells: int = MAX_CELLS,
        max_own_operations: int = MAX_OWN_OPERATIONS,
        max_lane: int = MAX_LANE,
        max_operations: int = MAX_OPERATIONS,
        rank_steps_at_once: int = RANK_STEPS_AT_ONCE,
        ranks_judged_at_once: int = RANKS_JUDGED_AT_ONCE,
        gpu_price: GpuPrice | None = None,
    ) -> None:
        super().__init__(reader, wall_s, ranks_judged_at_once)
        self.max_cells = max_cells
        self.max_own_operations = max_own_operations
        self.max_lane = max_lane
        self.max_operations = max_operations
        self.analyses = AnswerCache(KEPT_ANALYSES, ANALYSES_BYTES)
        self.background = BackgroundAnswers(KEPT_ANALYSES, max_bytes=ANALYSES_BYTES)
        self.gpu_price = gpu_price
        self.reports = Reports(self, rank_steps_at_once)

    def run_rows(self) -> list[dict[str, Any]]:
        """Every attempt of every run, newest first: the columns of ``StoredRuns``."""
        return self.ask_of_all(StoredRuns()).to_pylist()  # type: ignore[no-any-return]

    def newest(self, state: ViewState) -> RunSummary:
        """The run and attempt a view means: the newest where it does not say."""
        rows = self._attempts_of(state.run or self._newest_run(state.attempt))
        for row in rows:
            if state.attempt in (None, row["attempt"]):
                return self._summary(row)
        if not self.run_rows():
            raise UnknownRunError("No run is stored yet", hint="start one: `rankscope demo`")
        name = one_line(state.run, SHOWN_NAME)
        if rows and state.run:
            attempts = ", ".join(str(row["attempt"]) for row in rows)
            raise UnknownRunError(f"Run {name} has no attempt {state.attempt}", hint=f"it has attempt {attempts}")
        raise UnknownRunError(f"No run is called {name}", hint="choose one from the list of runs")

    def attempts(self, run_id: str) -> tuple[int, ...]:
        """Attempts of a run, newest first."""
        return tuple(row["attempt"] for row in self._attempts_of(run_id))

    def _newest_run(self, attempt: int | None) -> str:
        """Name of the newest run that has the attempt; empty where none has."""
        names = (row["run_id"] for row in self.run_rows() if attempt in (None, row["attempt"]))
        return next(names, "")

    def _attempts_of(self, run_id: str) -> list[dict[str, Any]]:
        """Every attempt of one run, newest first: the columns of ``Runs``."""
        return self.ask_of_all(Runs(run_ids=(run_id,))).to_pylist()  # type: ignore[no-any-return]

    def facts(self, state: ViewState) -> RunFacts:
        """The attempt a view means."""
        summary = self.newest(state)
        where, steps, stages, num_spans = self.kept(summary, "facts", lambda: self._facts(summary))
        return RunFacts(
            summary=summary,
            topology=where.topology,
            hosts=where.hosts,
            local_ranks=where.local_ranks,
            steps=steps,
            stages=stages,
            num_spans=num_spans,
        )

    def view(self, run: RunSummary, steps: StepRange) -> RunView:
        """What the detectors see of some steps, the newest of them where all hold too many operations."""
        newest = self.reports.newest_view(run) if self.num_operations(run, steps) <= self.max_operations else None
        if newest is not None and (newest.steps[0], newest.steps[-1]) == steps:
            return newest
        window = StepWindow(first_step=steps.first, last_step=steps.last)
        return load_view(self.reader_of(run), run.run_id, run.attempt, window, max_operations=self.max_operations)

    def num_operations(self, run: RunSummary, steps: StepRange) -> int:
        """How many operations some steps hold, of all ranks and stages."""
        query = StageCounts(run_id=run.run_id, attempt=run.attempt, first_step=steps.first, last_step=steps.last)
        return int(ints(self.ask(run, query), "spans").sum())

    def series(self, run: RunSummary) -> dict[str, Series]:
        """Metrics by step, by name; of many steps as few values as a curve shows."""
        return self.kept(run, "series", lambda: series_by_metric(self._reader.read(_curves(run))))

    def marks(self, run: RunSummary, limit: int = 50) -> list[MarkRow]:
        """The newest marks, newest first."""
        table = self.ask(run, Marks(run_id=run.run_id, attempt=run.attempt, limit=limit))
        return [MarkRow(**row) for row in reversed(table.to_pylist())]

    def ranks(self, run: RunSummary) -> list[RankState]:
        """What each rank last said of itself; empty where no agent watched."""
        return list(rank_states(self._heartbeats(run.run_id, run.attempt, run.last_ns)))

    def heard_ns(self, run: RunSummary) -> int:
        """When an agent last looked at a rank of the attempt; 0 where none did."""
        return max(self._heartbeats(run.run_id, run.attempt, run.last_ns)["at_ns"].to_pylist(), default=0)

    def spans(self, run: RunSummary, step: int, ranks: tuple[int, ...]) -> SpanColumns:
        """The spans of some ranks in a step; of a lane that holds thousands the longest."""
        query = Spans(
            run_id=run.run_id,
            attempt=run.attempt,
            first_step=step,
            last_step=step,
            ranks=ranks,
            longest=self.max_lane,
        )
        return span_columns(self.ask(run, query))

    def aligned_spans(self, facts: RunFacts, step: int, ranks: tuple[int, ...]) -> OneClock:
        """:meth:`spans` on one clock, as far as that is known."""

        def align() -> OneClock:
            return on_one_clock(self.spans(facts.summary, step, ranks), facts.hosts, self.clocks(facts, step))

        return self.kept(facts.summary, ("aligned", step, ranks), align)

    def clocks(self, facts: RunFacts, step: int) -> ClockTable:
        """How hosts' clocks lie apart around a step; empty where nobody knows."""
        run, lasts = facts.summary, facts.steps.duration_ns
        lasted_ns = lasts[facts.steps.step == step] if (facts.steps.step == step).any() else lasts[-1:]
        key = ("clocks", step)
        return self.kept(
            run, key, lambda: load_clocks(self._reader, run.run_id, run.attempt, np.array([step]), lasted_ns)
        )

    def _summary(self, row: dict[str, Any]) -> RunSummary:
        ranks = self._ranks(row["run_id"], row["attempt"], row["last_ns"])
        return RunSummary(
            run_id=row["run_id"],
            attempt=row["attempt"],
            started_ns=row["started_ns"],
            last_ns=row["last_ns"],
            num_ranks=row["num_ranks"],
            first_step=row["first_step"],
            last_step=row["last_step"],
            meta=words(row["meta"]),
            topology=topology_of(ranks) if ranks.num_rows else None,
            heard=self._heard(row),
        )

    def _heard(self, row: dict[str, Any]) -> Heard:
        stall = self._of_attempt(row, RunStalls(run_ids=(row["run_id"],)))
        steps = self._of_attempt(row, RunSteps(run_ids=(row["run_id"],))) if stall else None
        return state_of(
            self._of_attempt(row, RunBeats(run_ids=(row["run_id"],))),
            stall,
            last_end_ns=int(steps["last_end_ns"]) if steps else 0,
            last_ns=row["last_ns"],
            now_ns=self.now_ns(),
        )

    def _of_attempt(self, row: dict[str, Any], query: Query) -> dict[str, Any] | None:
        """The row about the attempt of ``row``, a row of ``Runs``, in the answer to ``query``."""
        answer = self.ask_now_and_then(query, row["last_ns"]).to_pylist()
        return next((found for found in answer if found["attempt"] == row["attempt"]), None)

    def _facts(self, run: RunSummary) -> tuple[Places, StepTimes, tuple[Stage, ...], int]:
        ranks = self._ranks(run.run_id, run.attempt, run.last_ns)
        if not ranks.num_rows:
            raise UnknownRunError(f"No rank of {run.run_id} has reported yet", hint="this page updates automatically")
        counts = self.ask(run, StageCounts(run_id=run.run_id, attempt=run.attempt))
        codes = counts["stage"].to_pylist()
        stages = tuple(stage for code, stage in STAGE_BY_CODE.items() if code in codes)
        steps = step_times(self.steps(run))
        return places(ranks), steps, stages, int(ints(counts, "spans").sum())

    def _ranks(self, run_id: str, attempt: int, last_ns: int) -> pa.Table:
        return self.ask_now_and_then(Ranks(run_id=run_id, attempt=attempt), last_ns)

    def _heartbeats(self, run_id: str, attempt: int, last_ns: int) -> pa.Table:
        return self.ask_now_and_then(Heartbeats(run_id=run_id, attempt=attempt), last_ns)


def _curves(run: RunSummary) -> Query:
    num_steps = run.last_step - run.first_step + 1
    if num_steps <= MAX_SAMPLES:
        return Samples(run_id=run.run_id, attempt=run.attempt, metrics=METRICS)
    width = -(-num_steps * SAMPLES_A_COLUMN // MAX_SAMPLES)
    return SampleCurves(run_id=run.run_id, attempt=run.attempt, metrics=METRICS, column_steps=width)
