"""What the timeline asks beside its spans."""

import numpy as np

from telemetry.stores.queries import Lanes, Spans
from ui.dashboard.columns import ints, span_columns
from ui.dashboard.data.core import Reads
from ui.dashboard.records import RunFacts, RunSummary, SpanColumns


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
