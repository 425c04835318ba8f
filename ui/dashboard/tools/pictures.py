"""Operations that show what a page draws: the heat map and the timeline, as numbers."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from diagnose.ranges import unfold_ranks
from telemetry.errors import UsageError
from telemetry.stages import STAGE_BY_CODE, STAGE_BY_LABEL, Stage, Stream
from telemetry.stores.interface import Reader
from ui.dashboard.data import Reads
from ui.dashboard.data.stage_times import pooled_times, stage_times
from ui.dashboard.defaults import MAX_ROWS, NEWEST_STEPS, Rows, chosen_stage, chosen_step, chosen_steps
from ui.dashboard.figures.metrics import READINGS, ranks_a_row, values
from ui.dashboard.pages.heat_map.picture import has_values
from ui.dashboard.pages.timeline.selection import OneClock, StepSelection, aligned, num_left_out
from ui.dashboard.pages.timeline.spans_buffer import NO_FLOW, flows, waited_ns
from ui.dashboard.records import Ints, RunFacts, SpanColumns
from ui.dashboard.tools.answers import facts_with_steps, head_of, window_of
from ui.dashboard.tools.parameters import HeatMapParameters, TimelineParameters
from ui.dashboard.view_state import Group, Metric, StepRange, ViewState

DIGITS = 4
"""Digits of a value after the decimal point."""
STREAMS = {int(stream): stream.label for stream in Stream}


def heat_map(asked: HeatMapParameters, reads: Reads, reader: Reader) -> dict[str, Any]:
    """The cells of the heat map page, for the chosen ranks."""
    stage = STAGE_BY_LABEL[asked.stage]
    state = ViewState(
        run=asked.run,
        attempt=asked.attempt,
        stage=stage,
        metric=asked.metric,
        clock=asked.time,
        steps=window_of(asked),
    )
    facts = facts_with_steps(state, reads)
    _check_stage(state, facts)
    rows = _rows(asked.ranks, facts)
    fitting = asked.max_cells // len(rows)
    steps = chosen_steps(state, facts, newest=min(NEWEST_STEPS, max(1, fitting)))
    times = stage_times(reads, facts, stage, asked.time, steps, asked.metric)
    if asked.metric is Metric.WAIT and not has_values(times, asked.metric):
        raise UsageError(
            f"{stage.label} has no waiting time in these steps",
            hint="it runs during compute, or its groups lie along different axes: choose another collective",
        )
    cells = pooled_times(reads, facts, times, asked.metric, steps)
    if len(cells.steps) > fitting:
        fewer = f"choose at most {fitting} of steps {steps.first} to {steps.last}" if fitting else "choose fewer ranks"
        raise UsageError(
            f"the heat map has {len(rows) * len(cells.steps):,} cells; max_cells is {asked.max_cells:,}",
            hint=f"{fewer}, or raise max_cells",
        )
    return {
        **head_of(facts.summary),
        "stage": stage.label,
        "metric": str(asked.metric),
        "unit": READINGS[asked.metric].title,
        "time": times.basis,
        "steps": cells.steps.tolist(),
        "steps_per_column": cells.steps_a_column,
        "ranks": (rows * cells.ranks_a_row).tolist(),
        "ranks_per_row": cells.ranks_a_row,
        "values": values(cells, asked.metric)[:, rows].round(DIGITS).tolist(),
        "worst_ranks": None if cells.ranks_a_row == 1 else cells.worst[:, rows].tolist(),
        "step_time_s": (cells.step_ns / 1e9).tolist(),
    }


def _check_stage(state: ViewState, facts: RunFacts) -> None:
    if state.stage not in facts.stages:
        recorded = ", ".join(stage.label for stage in facts.stages)
        raise UsageError(f"this run has no stage {state.stage.label}", hint=f"recorded stages: {recorded}")
    if chosen_stage(state, facts) is not state.stage:
        raise UsageError(
            f"the metric {state.metric} is not defined for {state.stage.label} in this run",
            hint="metric wait needs the stage of a collective with several ranks; exposed needs a communication stage",
        )


def _rows(ranks: str, facts: RunFacts) -> Ints:
    """The rows of the picture that contain these ranks, ascending. All rows if ``ranks`` is empty."""
    world = facts.topology.world_size
    chosen = np.array(unfold_ranks(ranks, world), dtype=np.int64) if ranks else np.arange(world)
    return np.unique(chosen // ranks_a_row(world))


def timeline(asked: TimelineParameters, reads: Reads, reader: Reader) -> dict[str, Any]:
    """The longest spans of the timeline page, on one clock."""
    state = ViewState(run=asked.run, attempt=asked.attempt, step=asked.step)
    facts = facts_with_steps(state, reads)
    ranks = _timeline_ranks(asked.ranks, facts)
    rows = Rows(ranks=ranks, group=Group.ALL, rank=ranks[0])
    step = chosen_step(state, facts)
    shown = StepSelection(facts=facts, rows=rows, step=step, steps=StepRange(step, step))
    on_one_clock = aligned(shown, reads)
    spans, alignment = on_one_clock.spans, on_one_clock.alignment
    origin_ns = int(spans.start_ns.min(initial=np.iinfo(np.int64).max)) if len(spans) else 0
    inner = np.flatnonzero(spans.stage != Stage.STEP)
    return {
        **head_of(facts.summary),
        "step": shown.step,
        "origin_ns": origin_ns,
        "clock_bound_ns": alignment.bound_ns,
        "unaligned_hosts": list(alignment.unaligned),
        "ranks": list(_rank_rows(ranks, spans, origin_ns, facts)),
        "num_spans": len(inner) + num_left_out(reads, facts.summary, shown.step, ranks),
        "spans": list(_span_rows(on_one_clock, inner, origin_ns, asked.limit, facts)),
    }


def _timeline_ranks(text: str, facts: RunFacts) -> tuple[int, ...]:
    world = facts.topology.world_size
    ranks = unfold_ranks(text, world) if text else tuple(range(min(world, MAX_ROWS)))
    if len(ranks) > MAX_ROWS:
        raise UsageError(f"{len(ranks):,} ranks: a timeline has at most {MAX_ROWS}", hint="choose fewer ranks")
    return ranks


def _rank_rows(ranks: tuple[int, ...], spans: SpanColumns, origin_ns: int, facts: RunFacts) -> Iterator[dict[str, Any]]:
    is_step = spans.stage == Stage.STEP
    for rank in ranks:
        (rows,) = np.nonzero(is_step & (spans.rank == rank))
        row = None if not len(rows) else int(rows[0])
        yield {
            "rank": rank,
            "host": facts.hosts[rank],
            "place": facts.place(rank),
            "step_start_ns": None if row is None else int(spans.start_ns[row]) - origin_ns,
            "step_ns": None if row is None else int(spans.duration_ns[row]),
        }


def _span_rows(
    on_one_clock: OneClock, inner: Ints, origin_ns: int, limit: int, facts: RunFacts
) -> Iterator[dict[str, Any]]:
    """The longest ``limit`` of the spans ``inner``. Operations and waits are computed from all spans."""
    spans = on_one_clock.spans
    flow = flows(spans, facts.topology)
    waited = waited_ns(spans, flow, on_one_clock.clocks_of(facts.hosts))
    by_length = inner[np.argsort(-spans.duration_ns[inner], kind="stable")][:limit]
    for row in np.sort(by_length).tolist():
        microbatch, peer = int(spans.microbatch[row]), int(spans.peer[row])
        yield {
            "rank": int(spans.rank[row]),
            "stage": STAGE_BY_CODE[int(spans.stage[row])].label,
            "stream": STREAMS.get(int(spans.stream[row]), ""),
            "start_ns": int(spans.start_ns[row]) - origin_ns,
            "duration_ns": int(spans.duration_ns[row]),
            "waited_ns": int(waited[row]),
            "operation": None if flow[row] == NO_FLOW else int(flow[row]),
            "microbatch": None if microbatch < 0 else microbatch,
            "peer": None if peer < 0 else peer,
            "size_bytes": int(spans.size_bytes[row]),
        }
