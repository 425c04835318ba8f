"""The ideal timeline below the measured one, as data for the canvas in the browser.

    {"lanes":   [first, one past the last],        of the picture's lanes, those of the strip below a rank's own
     "rows":    [0, 0, 1, 1],                      of each row of the picture, its pipeline rank among ``groups``
     "groups":  2,
     "begin": 40, "end": 700, "lost": 120,         ticks: the ideal step, and how much longer the step took
     "count": 9, "columns": {"row": ... (a group), "lane": ..., "start": ..., "duration": ..., "waited": ...,
                             "stage": ..., "occurrence": ..., "microbatch": ...}}       ordered by group, lane, start

All ranks of one pipeline rank share one strip. An ideal bar is the ``occurrence``-th of its stage, so that the browser
finds the measured bar for it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from diagnose.whatif.analysis import IdealOperations, IdealSteps
from telemetry.stages import STAGE_BY_CODE, StageClass
from ui.dashboard.pages.timeline.lanes import IDEAL_LANES, LANES, Prop, in_ticks, packed
from ui.dashboard.records import Ints, RunFacts, SpanColumns


@dataclass(frozen=True, slots=True, kw_only=True)
class IdealStrip:
    """The ideal step, and where it lies beside real spans."""

    operations: IdealOperations
    begin_ns: int
    """Stamp of its begin, on the clock of the spans: both begin together."""
    ideal_ns: int
    lost_ns: int
    """How much longer the step took; below zero where it was faster than usual."""

    @property
    def end_ns(self) -> int:
        return self.begin_ns + self.ideal_ns + max(self.lost_ns, 0)


def ideal_strip(ideal: IdealSteps, step: int, spans: SpanColumns) -> IdealStrip | None:
    """The ideal timeline beside the spans of a step of it; None where none of them is of a stage that is replayed."""
    replayed = np.isin(spans.stage, ideal.operations.stage)
    if not replayed.any():
        return None
    took_ns, alike_ns = ideal.cost_of(step)
    return IdealStrip(
        operations=ideal.operations,
        begin_ns=int(spans.start_ns[replayed].min()),
        ideal_ns=ideal.ideal_ns,
        lost_ns=round(took_ns - alike_ns),
    )


def stages_of(strip: IdealStrip, ranks: Sequence[int], facts: RunFacts) -> Ints:
    """Stages that the strips of some ranks show."""
    return np.unique(strip.operations.stage[np.isin(strip.operations.pp, _pipeline_ranks(ranks, facts))])


def ideal_duration_ns(strip: IdealStrip, span: SpanColumns, held: SpanColumns, facts: RunFacts) -> int | None:
    """How long one span (a single row) lasts in the ideal step; None where not all of its stage are in ``held``."""
    alike = held.where((held.rank == span.rank[0]) & (held.stage == span.stage[0]))
    operations = strip.operations
    pp = facts.topology.index["pp"][span.rank[0]]
    places = np.flatnonzero((operations.pp == pp) & (operations.stage == span.stage[0]))
    if len(places) != len(alike):
        return None
    occurrence = int((alike.start_ns < span.start_ns[0]).sum())
    return int(operations.duration_ns[places[operations.occurrence[places] == occurrence]][0])


def packed_strip(strip: IdealStrip, ranks: Sequence[int], facts: RunFacts, origin_ns: int, tick_ns: int) -> Prop:
    """``ranks``: of the rows, from the top."""
    pps, group = np.unique(_pipeline_ranks(ranks, facts), return_inverse=True)
    mine = np.flatnonzero(np.isin(strip.operations.pp, pps))
    row = np.searchsorted(pps, strip.operations.pp[mine])
    lane = _lane_of(strip.operations.stage[mine])
    order = np.lexsort((strip.operations.begin_ns[mine], lane, row))
    chosen, begin_ns = mine[order], strip.begin_ns - origin_ns
    operations = strip.operations
    start, duration = in_ticks(begin_ns + operations.begin_ns[chosen], operations.duration_ns[chosen], tick_ns)
    columns = {
        "row": row[order],
        "lane": lane[order],
        "start": start,
        "duration": duration,
        "waited": operations.waited_ns[chosen] // tick_ns,
        "stage": operations.stage[chosen],
        "occurrence": operations.occurrence[chosen],
        "microbatch": operations.microbatch[chosen],
    }
    return {
        "lanes": [len(LANES), len(LANES) + len(IDEAL_LANES)],
        "rows": group.tolist(),
        "groups": len(pps),
        "begin": begin_ns // tick_ns,
        "end": (begin_ns + strip.ideal_ns) // tick_ns,
        "lost": max(strip.lost_ns, 0) // tick_ns,
        "count": len(chosen),
        "columns": {name: packed(column) for name, column in columns.items()},
    }


def _pipeline_ranks(ranks: Sequence[int], facts: RunFacts) -> Ints:
    return facts.topology.index["pp"][np.asarray(ranks, dtype=np.int64)]


def _lane_of(stage: Ints) -> Ints:
    """Work in the first lane of the strip, what ranks do together in the second."""
    together = [code for code, one in STAGE_BY_CODE.items() if one.stage_class is StageClass.COMMUNICATION]
    return len(LANES) + np.isin(stage, together).astype(np.int64)
