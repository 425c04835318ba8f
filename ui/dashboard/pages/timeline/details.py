"""The details beside the picture: the chosen span, otherwise the shares of the step, or the open stages of the
ranks."""

import numpy as np
from dash.development.base_component import Component

from telemetry.stages import STAGE_BY_CODE, Stage
from ui.dashboard.data import Reads
from ui.dashboard.data.compute_times import runs_inside_compute
from ui.dashboard.pages.panels import notice
from ui.dashboard.pages.timeline.bubbles import pipeline_bubbles
from ui.dashboard.pages.timeline.ideal import known_strip
from ui.dashboard.pages.timeline.ideal_strip import ideal_duration_ns
from ui.dashboard.pages.timeline.open_details import open_span_details, open_stages
from ui.dashboard.pages.timeline.operation import operation_of
from ui.dashboard.pages.timeline.peer_comparison import same_work
from ui.dashboard.pages.timeline.picture import marked_ranks
from ui.dashboard.pages.timeline.row_order import ordered_ranks, shares_of_step
from ui.dashboard.pages.timeline.selection import StepSelection, aligned, displayed, selection, spans
from ui.dashboard.pages.timeline.span_details import span_details, step_share_table
from ui.dashboard.pages.timeline.step_shares import gaps_by_rank
from ui.dashboard.records import SpanColumns
from ui.dashboard.view_state import SpanKey, ViewState


def draw_details(state: ViewState, reads: Reads) -> Component:
    shown = selection(state, reads)
    loaded = spans(shown, reads)
    if state.span is None:
        return _draw_whole_step(state, shown, loaded, reads)
    row = np.flatnonzero((loaded.rank == state.span.rank) & (loaded.seq == state.span.seq))[:1]
    chosen = loaded.where(row)
    if not len(chosen):
        return _draw_open_span(state.span, state, shown, loaded)
    origin_ns = int(loaded.start_ns[loaded.step == chosen.step[0]].min())
    strip = known_strip(state, shown, reads)
    ideal_ns = ideal_duration_ns(strip, chosen, loaded, shown.facts) if strip else None
    operation = operation_of(int(row[0]), shown, reads)
    others = same_work(reads, shown.facts, chosen)
    stage = STAGE_BY_CODE[int(chosen.stage[0])]
    is_during_compute = runs_inside_compute(reads, shown.facts, stage, int(chosen.step[0]), (int(chosen.rank[0]),))
    return span_details(
        chosen, others, origin_ns, shown.facts, state, ideal_ns, operation, is_during_compute=is_during_compute
    )


def _draw_whole_step(state: ViewState, shown: StepSelection, loaded: SpanColumns, reads: Reads) -> Component:
    if shown.step == shown.unfinished:
        return open_stages(shown.open_spans, marked_ranks(state, reads), state)
    # Spans of several hosts have no common window without a common clock.
    is_aligned, of_step = not aligned(shown, reads).alignment.unaligned, shown.of_step(loaded)
    bubbles = pipeline_bubbles(of_step, shown.facts.topology) if is_aligned else []
    title = "Shares of the step" if shown.steps.first == shown.steps.last else f"Shares of step {shown.step}"
    named = marked_ranks(state, reads)
    ranks = displayed(state, ordered_ranks(state.timeline.order, shown, reads))
    shares = sorted(shares_of_step(shown, reads), key=lambda share: ranks.index(share.rank))
    inside = runs_inside_compute(reads, shown.facts, Stage.PARAMS_ALL_GATHER, shown.step, shown.rows.ranks)
    return step_share_table(shares, gaps_by_rank(of_step), named, bubbles, title, gathers_inside=inside)


def _draw_open_span(key: SpanKey, state: ViewState, shown: StepSelection, loaded: SpanColumns) -> Component:
    """The details of an open span. Its number is the number of the rank's last record plus 1."""
    last = int(loaded.seq[loaded.rank == key.rank].max(initial=-1))
    found = next((span for span in shown.open_spans if span.rank == key.rank and key.seq == last + 1), None)
    if found is None:
        text = f"Step {shown.step} of these ranks has no span with the number {key.rank}-{key.seq}."
        return notice("Span not found", text)
    return open_span_details(found, shown.facts, state)
