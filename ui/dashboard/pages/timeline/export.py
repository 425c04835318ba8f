"""The queries of the timeline besides its spans, and the choice of spans for a trace file, which is bounded."""

import numpy as np

from diagnose.findings import StepWindow
from diagnose.ranges import fold_ranks
from diagnose.trace.choice import Choice, choose
from diagnose.trace.export import Format
from telemetry.errors import UsageError
from telemetry.stores.interface import Reader
from telemetry.stores.queries import Lanes, Spans
from ui.dashboard.columns import ints, span_columns
from ui.dashboard.data.core import Reads
from ui.dashboard.defaults import Rows
from ui.dashboard.records import RunFacts, RunSummary, SpanColumns
from ui.dashboard.view_state import StepRange, ViewState
from ui.dashboard.wording import count

PATH, FORM = "trace", "form"
"""Of the route that gives it away, and the field of its address beside those of the view."""
MAX_SPANS = 200_000
"""Of one file; larger ones are the command's."""


def trace_address(state: ViewState, form: Format) -> str:
    """Where the trace of a view is, beside the page itself."""
    return f"{PATH}{state.search()}&{FORM}={form}"


def num_spans(facts: RunFacts, steps: StepRange, rows: Rows, reads: Reads) -> int:
    """How many spans a trace of some steps and ranks would hold.

    Raises:
        UsageError: more than a page gives away; the hint tells what does.
    """
    run = facts.summary
    query = Lanes(
        run_id=run.run_id, attempt=run.attempt, first_step=steps.first, last_step=steps.last, ranks=rows.ranks
    )
    found = int(ints(reads.ask(run, query), "spans").sum())
    if found > MAX_SPANS:
        raise UsageError(
            f"{count(found, 'span')}: the limit of this page is {MAX_SPANS:,}",
            hint=f"this command writes all of them: {command(facts, steps, rows)}",
        )
    return found


def chosen_trace(facts: RunFacts, steps: StepRange, rows: Rows, reads: Reads, reader: Reader) -> Choice:
    """What is written.

    Raises:
        UsageError: nothing is stored there, or more than a page gives away.
    """
    num_spans(facts, steps, rows, reads)
    window = StepWindow(first_step=steps.first, last_step=steps.last)
    return choose(reader, facts.summary.run_id, facts.summary.attempt, window=window, ranks=fold_ranks(rows.ranks))


def command(facts: RunFacts, steps: StepRange, rows: Rows) -> str:
    """The same file for the command line."""
    run = facts.summary
    ranks = fold_ranks(rows.ranks).replace(" ", "")
    of = "" if len(rows.ranks) == facts.topology.world_size else f" --ranks {ranks}"
    return (
        f"rankscope export perfetto {run.run_id} --attempt {run.attempt} "
        f"--first-step {steps.first} --last-step {steps.last}{of}"
    )


def spans_left_out(reads: Reads, run: RunSummary, step: int, ranks: tuple[int, ...]) -> int:
    """How many spans ``Reads.spans`` leaves out."""
    shown = reads.spans(run, step, ranks)
    fullest = np.unique(np.stack([shown.rank, shown.stream]), axis=1, return_counts=True)[1].max(initial=0)
    if fullest < reads.max_lane:
        return 0
    query = Lanes(run_id=run.run_id, attempt=run.attempt, first_step=step, last_step=step, ranks=ranks)
    return int(np.maximum(ints(reads.ask(run, query), "spans") - reads.max_lane, 0).sum())


def same_work(reads: Reads, facts: RunFacts, span: SpanColumns) -> SpanColumns:
    """Spans of the same stage in the same step on the rank itself and its peers (same pipeline stage)."""
    run, rank = facts.summary, int(span.rank[0])
    pp_of_rank = facts.topology.index["pp"]
    peers = tuple(np.flatnonzero(pp_of_rank == pp_of_rank[rank]).tolist())
    step = int(span.step[0])
    query = Spans(
        run_id=run.run_id,
        attempt=run.attempt,
        first_step=step,
        last_step=step,
        ranks=peers,
        stages=(int(span.stage[0]),),
    )
    return span_columns(reads.ask(run, query))
