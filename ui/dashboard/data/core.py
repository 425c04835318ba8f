"""The queries about a run that several pages share. They return records."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from diagnose.findings import StepWindow
from diagnose.model.load import load_view, meta_of_ranks
from diagnose.model.roles import role_of_ranks
from diagnose.model.run_state import Heard, state_of
from diagnose.model.view import RunView
from telemetry.errors import RankscopeError, UnknownRunError
from telemetry.printable import one_line
from telemetry.records import topology_of
from telemetry.stages import STAGE_BY_CODE
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
    SampleNames,
    Samples,
    Spans,
    StageCounts,
    StoredRuns,
)
from ui.dashboard.data.cache import AnswerCache, BackgroundAnswers, StillWorking
from ui.dashboard.data.chart_parts import MAX_COLUMNS, Part
from ui.dashboard.data.columns import ints, metadata, rank_states, series_by_metric, span_columns, step_times
from ui.dashboard.data.reports import Reports, StallQueries
from ui.dashboard.data.settings import USUAL, ReadSettings
from ui.dashboard.records import MarkRow, RankState, RunFacts, RunSummary, Series, SpanColumns
from ui.dashboard.view_state import StepRange, ViewState

KEPT_ANALYSES = 16
"""Number of answers in each of the two caches of analyses."""
ANALYSES_BYTES = 64 * 2**20
METRICS = ("loss", "tokens-per-second", "mfu")
SHOWN_NAME = 80
"""Characters of an unknown name in a message. A request can contain any text."""


class Reads(StallQueries):
    """Answers for pages. Every method may block and may be called from any thread.

    Raises:
        UnknownRunError: the view names a run that is not stored.
        UnreachableError: the store or the collector does not answer.
    """

    def __init__(self, reader: Reader, wall_s: Callable[[], float] = time.time, settings: ReadSettings = USUAL) -> None:
        super().__init__(reader, wall_s, settings.ranks_judged_at_once)
        self.max_cells = settings.max_cells
        self.max_own_operations = settings.max_own_operations
        self.max_lane = settings.max_lane
        self.max_operations = settings.max_operations
        self.gpu_price = settings.gpu_price
        self.takes_orders = settings.takes_orders
        self.takes_actions = settings.takes_actions
        self.perfetto = settings.perfetto
        self.has_sql = settings.has_sql
        self.analyses = AnswerCache(KEPT_ANALYSES, ANALYSES_BYTES)
        self.background = BackgroundAnswers(KEPT_ANALYSES, max_bytes=ANALYSES_BYTES)
        self.reports = Reports(self, settings.rank_steps_at_once)

    def run_rows(self) -> list[dict[str, Any]]:
        """Every attempt of every run, newest first: the columns of ``StoredRuns``."""
        return self.ask_all_runs(StoredRuns()).to_pylist()  # type: ignore[no-any-return]

    def newest(self, state: ViewState) -> RunSummary:
        """The attempt that a view names. If it names no run or no attempt, the newest one."""
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
        what = f"is called {name}" if state.run else f"has attempt {state.attempt}"
        raise UnknownRunError(f"No run {what}", hint="choose one from the list of runs")

    def attempts(self, run_id: str) -> tuple[int, ...]:
        """Attempts of a run, newest first."""
        return tuple(row["attempt"] for row in self._attempts_of(run_id))

    def last_steps(self, run_id: str) -> dict[int, int]:
        """The newest step of each attempt of a run."""
        return {row["attempt"]: row["last_step"] for row in self._attempts_of(run_id)}

    def _newest_run(self, attempt: int | None) -> str:
        """The newest run that has the attempt. Empty if there is none."""
        names = (row["run_id"] for row in self.run_rows() if attempt in (None, row["attempt"]))
        return next(names, "")

    def _attempts_of(self, run_id: str) -> list[dict[str, Any]]:
        """Every attempt of one run, newest first: the columns of ``Runs``."""
        return self.ask_all_runs(Runs(run_ids=(run_id,))).to_pylist()  # type: ignore[no-any-return]

    def facts(self, state: ViewState) -> RunFacts:
        """Facts about the attempt of a view."""
        summary = self.newest(state)
        return replace(self.cached(summary, "facts", lambda: self._facts(summary)), summary=summary)

    def view(self, run: RunSummary, steps: StepRange) -> RunView:
        """What the detectors examine in some steps. If these have too many operations, only the newest of the steps."""
        newest = self.reports.newest_view(run) if self.num_operations(run, steps) <= self.max_operations else None
        if newest is not None and (newest.steps[0], newest.steps[-1]) == steps:
            return newest
        window = StepWindow(first_step=steps.first, last_step=steps.last)
        return load_view(self.reader_of(run), run.run_id, run.attempt, window, max_operations=self.max_operations)

    def num_operations(self, run: RunSummary, steps: StepRange) -> int:
        """The number of operations in some steps, on all ranks."""
        query = StageCounts(**run.key, first_step=steps.first, last_step=steps.last)
        return int(ints(self.ask(run, query), "spans").sum())

    def series(self, run: RunSummary) -> dict[str, Series]:
        """The metrics of the trainer by name. A long run is thinned to the resolution of a curve."""
        return self.samples(run, METRICS, Part.of(run))

    def samples(self, run: RunSummary, metrics: tuple[str, ...], part: Part) -> dict[str, Series]:
        """Metrics by name, in a part of a run. A long part is thinned to the resolution of a curve."""
        query: Query
        if part.is_short:
            query = Samples(**run.key, metrics=metrics, first_step=part.first_step, last_step=part.last_step)
        else:
            query = SampleCurves(**part.of_query(run), metrics=metrics, column_steps=part.column_steps(MAX_COLUMNS))
        key = "samples", metrics, part.name
        return self.cached(run, key, lambda: series_by_metric(self._reader.read(query), run.attempt))

    def sample_names(self, run: RunSummary) -> list[str]:
        """The names of all metrics of an attempt, in alphabetical order."""
        return self.ask(run, SampleNames(**run.key))["metric"].to_pylist()  # type: ignore[no-any-return]

    def marks(self, run: RunSummary, limit: int = 50) -> list[MarkRow]:
        """The newest marks, newest first."""
        table = self.ask(run, Marks(**run.key, limit=limit))
        return [MarkRow(**row) for row in reversed(table.to_pylist())]

    def ranks(self, run: RunSummary, only: Sequence[int] | None = None) -> list[RankState]:
        """The last heartbeat of each rank, or of the ranks in ``only``. Empty if no agent watched the run."""
        beats = self._heartbeats(run)
        return rank_states(beats if only is None else beats.filter(pc.field("rank").isin(only)))

    def heard_ns(self, run: RunSummary) -> int:
        """The time of the newest heartbeat of the attempt. 0 without a heartbeat."""
        return max(self._heartbeats(run)["at_ns"].to_pylist(), default=0)

    def spans(self, run: RunSummary, step: int, ranks: tuple[int, ...], last_step: int | None = None) -> SpanColumns:
        """The spans of some ranks in a step, or in all steps up to ``last_step``: at most ``max_lane`` of each rank and
        stream, the longest ones."""
        last = step if last_step is None else last_step
        query = Spans(**run.key, first_step=step, last_step=last, ranks=ranks, longest=self.max_lane)
        return span_columns(self.ask(run, query))

    def report_freshness(self, state: ViewState) -> list[object]:
        """A value that changes when there is a newer report."""
        return [self.reports.freshness(self.newest(state))]

    def stall_freshness(self, state: ViewState) -> list[object]:
        """A value that changes when there is new evidence of a stall, or when its verdict is ready."""
        is_judged = True
        try:
            self.hang(self.facts(state))
        except StillWorking:
            is_judged = False
        except RankscopeError:
            pass  # a part of the page shows the error
        return [*self.stored_evidence(self.newest(state)), is_judged]

    def _summary(self, row: dict[str, Any]) -> RunSummary:
        ranks = self.ask_each_second(Ranks(run_id=row["run_id"], attempt=row["attempt"]), row["last_ns"])
        return RunSummary(
            run_id=row["run_id"],
            attempt=row["attempt"],
            started_ns=row["started_ns"],
            last_ns=row["last_ns"],
            num_ranks=row["num_ranks"],
            first_step=row["first_step"],
            last_step=row["last_step"],
            meta=metadata(row["meta"]),
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
        """The row of the answer to ``query`` that has the attempt of ``row``."""
        answer = self.ask_each_second(query, row["last_ns"]).to_pylist()
        return next((found for found in answer if found["attempt"] == row["attempt"]), None)

    def _facts(self, run: RunSummary) -> RunFacts:
        ranks = self.ask_each_second(Ranks(**run.key), run.last_ns)
        if not ranks.num_rows:
            raise UnknownRunError(f"No rank of {run.run_id} has reported yet", hint="this page updates automatically")
        topology = topology_of(ranks)
        hosts, local_ranks = [""] * topology.world_size, [0] * topology.world_size
        columns = (ranks[name].to_pylist() for name in ("rank", "host", "local_rank"))
        for rank, host, local_rank in zip(*columns, strict=True):
            if rank < topology.world_size:
                hosts[rank], local_ranks[rank] = host, local_rank
        roles = role_of_ranks(meta_of_ranks(ranks, topology), topology.world_size)
        counts = self.ask(run, StageCounts(**run.key))
        codes = counts["stage"].to_pylist()
        return RunFacts(
            summary=run,
            topology=topology,
            hosts=tuple(hosts),
            local_ranks=tuple(local_ranks),
            steps=step_times(self.steps(run)),
            stages=tuple(stage for code, stage in STAGE_BY_CODE.items() if code in codes),
            num_spans=int(ints(counts, "spans").sum()),
            roles=roles if any(roles) else (),
        )

    def _heartbeats(self, run: RunSummary) -> pa.Table:
        return self.ask_each_second(Heartbeats(**run.key), run.last_ns)
