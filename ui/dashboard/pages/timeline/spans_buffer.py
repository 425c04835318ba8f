"""Spans as data for the canvas in the browser: typed arrays in base64, as narrow as their values allow.

    {"count": 2, "tick_ns": 1, "end": 900, "step": 7,
     "rows":    [{"rank": 5, "name": "dp1 pp0 tp1 · gpu-03", "first_seq": "1000"}, ...]    from the top
     "lanes":   [{"name": "compute", "weight": 3.0}, ...]                                 of every row, from the top
     "stages":  {"3": {"label": "forward-compute", "short": "F", "colour": "#62aef0"}, ...}
     "columns": {"start": {"dtype": "u4", "bdata": "..."}, "duration": ..., "row": ..., "lane": ..., "stage": ...,
                 "waited": ..., "flow": ..., "seq": ..., "microbatch": ..., "peer": ...}   ordered by row, lane, start
     "steps":   {"row": ..., "start": ..., "duration": ...},                              drawn faintly
                   both also have "number" if there are several steps: the step, counted from "step"
     "gaps":    {"row": ..., "start": ..., "duration": ..., "cause": ...}, "causes": ["pipeline bubble ...", ...],
     "open":    [{"index": 17, "lasts": "for 34 min", "operation": "all_gather #41 of tp [4-5]", "waits": [5],
                 "lines": ["open since 14:02:31 ...", ...]}, ...],                       spans without an end
    "counters": {...},                                only if counters are shown: see counters.py
    "ideal":   {...}}                                 only if the ideal timeline is shown: see ideal_strip.py

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
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from diagnose.model.partners import NOBODY, NOT_NUMBERED, alike, operation_places, recorded_numbers
from telemetry.stages import STAGE_BY_CODE, Stage
from telemetry.topology import Topology
from ui.dashboard.figures.style import STAGE_COLOURS, STAGE_SHORT
from ui.dashboard.pages.timeline.counters import NO_COUNTERS, CounterCurves, packed_counters
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
from ui.dashboard.pages.timeline.open_rows import OpenRows, joined, open_lines, with_open_rows
from ui.dashboard.pages.timeline.open_spans import OpenSpan
from ui.dashboard.pages.timeline.selection import OneClock, SpanClocks
from ui.dashboard.pages.timeline.step_shares import Gap
from ui.dashboard.records import Ints, RunFacts, SpanColumns

NO_FLOW = 0
NOT_COMPARABLE_NS = np.iinfo(np.int64).max
"""The bound of times whose clocks are not aligned."""


def flows(spans: SpanColumns, topology: Topology) -> Ints:
    """The operation of each span, numbered from 1. ``NO_FLOW`` for a span without a partner in ``spans``."""
    place, number = operation_places(spans, topology).place, recorded_numbers(spans)
    rows = np.flatnonzero((place != NOBODY) & (number != NOT_NUMBERED))
    labelled = np.where(number[rows] < 0, spans.step[rows], 0)  # a microbatch is a number within one step only
    operation = alike(place[rows], number[rows], labelled)
    shared = np.bincount(operation, minlength=1)[operation] > 1
    found = np.full(len(spans), NO_FLOW, dtype=np.int64)
    found[rows[shared]] = np.unique(operation[shared], return_inverse=True)[1] + 1
    return found


def waited_ns(spans: SpanColumns, flow: Ints, clocks: SpanClocks) -> Ints:
    """The time that each span waited for its last partner to start. 0 if that is uncertain, or if the partner started
    after the span had ended."""
    waited = np.zeros(len(spans), dtype=np.int64)
    members = np.flatnonzero(flow != NO_FLOW)
    if not len(members):
        return waited
    of, start = flow[members], spans.start_ns[members]
    latest = np.full(int(of.max()) + 1, np.iinfo(np.int64).min)
    np.maximum.at(latest, of, start)
    wait = latest[of] - start
    known = (wait > bounds_ns(of, clocks.where(members))[of]) & (wait < spans.duration_ns[members])
    waited[members] = np.where(known, wait, 0)
    return waited


def bounds_ns(of: Ints, clocks: SpanClocks) -> Ints:
    """The error bound for times of different members, for each operation from 0. It is 0 if all members are on one
    host, and ``NOT_COMPARABLE_NS`` if a host is not aligned. ``of``: the operation of each member; at least one."""
    on_one_clock = np.where(_has_one(clocks.clock, of), clocks.bound_ns, NOT_COMPARABLE_NS)
    return np.where(_has_one(clocks.host, of), 0, on_one_clock)


def _has_one(number: Ints, of: Ints) -> npt.NDArray[np.bool_]:
    """For each operation: whether all its members have the same ``number``."""
    lowest = np.full(int(of.max()) + 1, np.iinfo(np.int64).max)
    highest = np.full(len(lowest), np.iinfo(np.int64).min)
    np.minimum.at(lowest, of, number)
    np.maximum.at(highest, of, number)
    return np.asarray(lowest == highest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Additions:
    """What is drawn besides recorded spans."""

    strip: IdealStrip | None = None
    opened: tuple[OpenSpan, ...] = ()
    counters: CounterCurves = NO_COUNTERS
    least_ns: int = 0
    """The time axis is at least this long."""


NO_ADDITIONS = Additions()


def spans_buffer(
    aligned: OneClock,
    gaps: Sequence[Gap],
    names: Mapping[int, str],
    step: int,
    facts: RunFacts,
    additions: Additions = NO_ADDITIONS,
) -> Prop:
    """The ``data`` of a ``SpanTimeline``, in the format above: a row for each rank of ``names``, in its order.
    ``step``: the first step."""
    strip, counters = additions.strip, additions.counters
    aligned, open_rows = with_open_rows(aligned, additions.opened, facts.hosts)
    spans, flow, waited = _related(aligned, open_rows, facts)
    origin_ns = int(spans.start_ns.min()) if len(spans) else 0
    end_ns = max(int(spans.end_ns.max(initial=0)), strip.end_ns if strip else 0) - origin_ns
    end_ns = max(end_ns, additions.least_ns)
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
    of_steps: tuple[str, ...] = ("row", "start", "duration")
    if len(spans) and spans.step.min() < spans.step.max():
        columns["number"], of_steps = spans.step - step, (*of_steps, "number")
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
        "steps": {name: packed(columns[name][steps]) for name in of_steps},
        **_gaps(gaps, row_of, origin_ns, tick_ns),
        "open": _open(open_rows, inner, len(aligned.spans)),
        **({"counters": packed_counters(counters, row_of, origin_ns, tick_ns)} if counters.curves else {}),
        **({"ideal": packed_strip(strip, [*names], facts, origin_ns, tick_ns)} if strip else {}),
    }


def _related(aligned: OneClock, open_rows: OpenRows | None, facts: RunFacts) -> tuple[SpanColumns, Ints, Ints]:
    """Recorded and open spans, with the operation and the waiting time of each."""
    spans = aligned.spans
    flow = flows(spans, facts.topology)
    waited = waited_ns(spans, flow, aligned.clocks_of(facts.hosts))
    if open_rows is None:
        return spans, flow, waited
    of_open = np.where(open_rows.flow > 0, open_rows.flow + flow.max(initial=0), NO_FLOW)
    waited = np.concatenate([waited, open_rows.rows.duration_ns * open_rows.waits])
    return joined(spans, open_rows.rows), np.concatenate([flow, of_open]), waited


def _open(open_rows: OpenRows | None, inner: Ints, num_recorded: int) -> list[Prop]:
    """The open spans. ``inner``: the row of each span of the picture. Open rows follow ``num_recorded`` recorded
    rows."""
    if open_rows is None:
        return []
    index_of = {row: index for index, row in enumerate(inner.tolist())}
    return [
        {
            "index": index_of[num_recorded + at],
            "lasts": span.lasts,
            "operation": span.operation,
            "waits": [*span.waits_for],
            "lines": open_lines(span),
        }
        for at, span in enumerate(open_rows.spans)
    ]


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
