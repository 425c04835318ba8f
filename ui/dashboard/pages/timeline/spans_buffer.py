"""Spans as data for the canvas in the browser: typed arrays in base64, as narrow as their values allow.

    {"count": 2, "tick_ns": 1, "end": 900, "step": 7,
     "rows":    [{"rank": 5, "name": "dp1 pp0 tp1 · gpu-03", "first_seq": "1000"}, ...]    from the top
     "lanes":   [{"name": "compute", "weight": 3.0}, ...]                                 of every row, from the top
     "stages":  {"3": {"label": "forward-compute", "short": "F", "colour": "#62aef0"}, ...}
     "columns": {"start": {"dtype": "u4", "bdata": "..."}, "duration": ..., "row": ..., "lane": ..., "stage": ...,
                 "waited": ..., "flow": ..., "seq": ..., "microbatch": ..., "peer": ...}   ordered by row, lane, start
     "steps":   {"row": ..., "start": ..., "duration": ...}                               drawn faintly
     "gaps":    {"row": ..., "start": ..., "duration": ..., "cause": ...}, "causes": ["pipeline bubble ...", ...],
     "ideal":   {...}}                                 only where the ideal timeline is shown: see ideal_strip.py

Times count from the earliest span, in ticks of ``tick_ns`` nanoseconds: 1 if the picture is shorter than 4.29 s, else
the smallest power of ten with which it fits 32 bits. A ``seq`` counts from its row's ``first_seq``, which is text:
JavaScript has no 64-bit integers. ``waited`` is the first part of a span's duration.

Spans of one operation share a flow number. ``waited`` is the time that each of them waited for the others:

rank 0   |-- all-gather 7 ----|         one collective: the same stage, group and number
rank 1          |= all-gather 7 =|      rank 0 waited until rank 1 arrived: the faint part
         ^^^^^^^

rank 1   |s|                            one transfer: sender, receiver and number, or microbatch if no number was
recorded rank 3 |r---|
"""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from diagnose.model.partners import NOBODY, NOT_NUMBERED, alike, operation_places, recorded_numbers
from telemetry.stages import STAGE_BY_CODE, Stage
from telemetry.topology import Topology
from ui.dashboard.figures.style import STAGE_COLOURS, STAGE_SHORT
from ui.dashboard.pages.timeline.ideal_strip import (
    IDEAL_LANES,
    LANES,
    IdealStrip,
    Prop,
    in_ticks,
    lane_of,
    packed,
    packed_strip,
    stages_of,
    tick_of,
)
from ui.dashboard.pages.timeline.selection import OneClock
from ui.dashboard.pages.timeline.step_shares import Gap
from ui.dashboard.records import Ints, RunFacts, SpanColumns

NO_FLOW = 0


def flows(spans: SpanColumns, topology: Topology) -> Ints:
    """The operation of each span, numbered from 1. ``NO_FLOW`` for a span without a partner in ``spans``."""
    place, number = operation_places(spans, topology).place, recorded_numbers(spans)
    rows = np.flatnonzero((place != NOBODY) & (number != NOT_NUMBERED))
    operation = alike(place[rows], number[rows])
    shared = np.bincount(operation, minlength=1)[operation] > 1
    found = np.full(len(spans), NO_FLOW, dtype=np.int64)
    found[rows[shared]] = np.unique(operation[shared], return_inverse=True)[1] + 1
    return found


def waited_ns(spans: SpanColumns, flow: Ints, clock: Ints, bound_ns: int) -> Ints:
    """The time that each span waited for its last partner to start. 0 if that is uncertain, or if the partner started
    after the span had ended.

    ``clock``: the clock of each span's times. Clock 0 is aligned within ``bound_ns``.
    """
    waited = np.zeros(len(spans), dtype=np.int64)
    members = np.flatnonzero(flow != NO_FLOW)
    if not len(members):
        return waited
    of, start = flow[members], spans.start_ns[members]
    latest = np.full(int(of.max()) + 1, np.iinfo(np.int64).min)
    np.maximum.at(latest, of, start)
    wait = latest[of] - start
    known = (wait > bound_ns) & (wait < spans.duration_ns[members]) & _on_one_clock(of, clock[members])
    waited[members] = np.where(known, wait, 0)
    return waited


def _on_one_clock(of: Ints, clock: Ints) -> npt.NDArray[np.bool_]:
    """For each member: whether all members of its operation have times of the same clock."""
    lowest = np.full(int(of.max()) + 1, np.iinfo(np.int64).max)
    highest = np.full(len(lowest), np.iinfo(np.int64).min)
    np.minimum.at(lowest, of, clock)
    np.maximum.at(highest, of, clock)
    return np.asarray(lowest[of] == highest[of])


def spans_buffer(
    aligned: OneClock,
    gaps: Sequence[Gap],
    names: Mapping[int, str],
    step: int,
    facts: RunFacts,
    strip: IdealStrip | None = None,
) -> Prop:
    """The ``data`` of a ``SpanTimeline``, in the format above: a row for each rank of ``names``, in its order."""
    spans = aligned.spans
    flow = flows(spans, facts.topology)
    waited = waited_ns(spans, flow, aligned.clocks_of(facts.hosts), aligned.alignment.bound_ns)
    origin_ns = int(spans.start_ns.min()) if len(spans) else 0
    end_ns = max(int(spans.end_ns.max(initial=0)), strip.end_ns if strip else 0) - origin_ns
    tick_ns = tick_of(end_ns)
    row_of = {rank: row for row, rank in enumerate(names)}
    inner = np.flatnonzero(spans.stage != Stage.STEP)
    row, lane_index = np.array([row_of[int(rank)] for rank in spans.rank], dtype=np.int64), lane_of(spans.stream)
    inner = inner[np.lexsort((-spans.duration_ns[inner], spans.start_ns[inner], lane_index[inner], row[inner]))]
    start, duration = in_ticks(spans.start_ns - origin_ns, spans.duration_ns, tick_ns)
    first_seq = {rank: int(spans.seq[spans.rank == rank].min(initial=2**62)) for rank in names}
    columns = {
        "start": start,
        "duration": duration,
        "row": row,
        "lane": lane_index,
        "stage": spans.stage,
        "waited": waited // tick_ns,
        "flow": flow,
        "seq": spans.seq - np.array([first_seq[int(rank)] for rank in spans.rank], dtype=np.int64),
        "microbatch": spans.microbatch,
        "peer": spans.peer,
    }
    steps = np.flatnonzero(spans.stage == Stage.STEP)
    lanes, shown = (LANES + IDEAL_LANES, stages_of(strip, [*names], facts)) if strip else (LANES, spans.stage[:0])
    return {
        "count": len(inner),
        "tick_ns": tick_ns,
        "end": -(-end_ns // tick_ns),
        "step": step,
        "rows": [{"rank": rank, "name": name, "first_seq": str(first_seq[rank])} for rank, name in names.items()],
        "lanes": [{"name": lane.name, "weight": lane.weight} for lane in lanes],
        "stages": palette(np.union1d(spans.stage[inner], shown)),
        "columns": {name: packed(column[inner]) for name, column in columns.items()},
        "steps": {name: packed(columns[name][steps]) for name in ("row", "start", "duration")},
        **_gaps(gaps, row_of, origin_ns, tick_ns),
        **({"ideal": packed_strip(strip, [*names], facts, origin_ns, tick_ns)} if strip else {}),
    }


def palette(stages: Ints) -> Prop:
    """Names and colours by stage code."""
    return {
        str(int(stage)): {"label": stage.label, "short": STAGE_SHORT.get(stage, ""), "colour": STAGE_COLOURS[stage]}
        for stage in (STAGE_BY_CODE[int(code)] for code in stages)
    }


def _gaps(gaps: Sequence[Gap], row_of: Mapping[int, int], origin_ns: int, tick_ns: int) -> Prop:
    causes = list(dict.fromkeys(gap.cause for gap in gaps))
    begins = np.array([gap.start_ns for gap in gaps], dtype=np.int64) - origin_ns
    lasts = np.array([gap.duration_ns for gap in gaps], dtype=np.int64)
    start, duration = in_ticks(begins, lasts, tick_ns)
    columns = {
        "row": np.array([row_of[gap.rank] for gap in gaps], dtype=np.int64),
        "start": start,
        "duration": duration,
        "cause": np.array([causes.index(gap.cause) for gap in gaps], dtype=np.int64),
    }
    return {"gaps": {name: packed(column) for name, column in columns.items()}, "causes": causes}
