"""The timeline page: every span of a step on the ranks of a group.

Beside it are the details of the chosen span or the statistics of the marked area; trace files for Perfetto are links.
"""

from contextlib import suppress

import dash_mantine_components as dmc
from dash import html
from dash.development.base_component import Component

from diagnose.model.run_state import RunState
from telemetry.errors import RankscopeError
from ui.dashboard.data import Reads
from ui.dashboard.data.fleet import agents_freshness
from ui.dashboard.pages.interface import Canvas, Page, Region, region_id
from ui.dashboard.pages.panels import canvas_panel, loading, notice
from ui.dashboard.pages.timeline.area import draw_area
from ui.dashboard.pages.timeline.counter_table import draw_counters
from ui.dashboard.pages.timeline.details import draw_details
from ui.dashboard.pages.timeline.ideal import draw_ideal, ideal_freshness
from ui.dashboard.pages.timeline.open_spans import OpenSpan
from ui.dashboard.pages.timeline.picture import draw_spans, marked_ranks, spans_key
from ui.dashboard.pages.timeline.selection import selection, spans
from ui.dashboard.pages.timeline.span_table import draw_span_table
from ui.dashboard.pages.timeline.step_controls import control_values, draw_controls, draw_links
from ui.dashboard.pages.timeline.title import draw_title
from ui.dashboard.pages.timeline.trace_links import draw_trace_links
from ui.dashboard.timeline_view import Counters
from ui.dashboard.view_state import ViewState


def skeleton() -> Component:
    title = html.Div(loading(28), id=region_id("spans-title"))
    details = [html.Div(id=region_id("area")), html.Div(loading(240), id=region_id("details"))]
    beside = html.Div(
        [
            canvas_panel("timeline", title, label="spans of each rank over the step"),
            html.Aside(details, className="panel", **{"aria-label": "details"}),
        ],
        className="beside",
    )
    controls = html.Section(
        [
            html.Div(loading(60), id=region_id("timeline-controls")),
            html.Div(id=region_id("timeline-links"), className="links"),
            html.Div(id=region_id("trace")),
        ],
        className="panel controls",
    )
    above = [html.Div(id=region_id(name)) for name in ("timeline-problem", "ideal")]
    below = [html.Div(id=region_id(name)) for name in ("counters", "span-table")]
    return dmc.Stack([controls, *above, beside, *below], gap="md")


def _draw_problem(state: ViewState, reads: Reads) -> Component | None:
    shown = selection(state, reads)
    if len(spans(shown, reads)) or shown.open_spans:
        return None
    return notice("No span recorded", f"None of these ranks recorded a span in step {shown.step}.")


def _freshness(state: ViewState, reads: Reads) -> list[object]:
    """Values that change with the reports, the replay, the evidence of a stall, and the open stages that are shown."""
    facts = reads.facts(state)
    stalled = [] if facts.summary.state in (RunState.LIVE, RunState.SILENT) else reads.stall_freshness(state)
    opened: tuple[OpenSpan, ...] = ()
    with suppress(RankscopeError):  # a part of the page shows the error
        opened = selection(state, reads).open_spans if len(facts.steps.step) else ()
    now_open = [(span.rank, span.step, span.since_ns) for span in opened]
    sampled = [] if state.timeline.counters is Counters.NONE else [agents_freshness(reads, facts.summary)]
    return [*reads.report_freshness(state), *ideal_freshness(state, reads), *stalled, *now_open, *sampled]


PAGE = Page(
    title="Timeline",
    skeleton=skeleton,
    regions={
        "timeline-controls": Region(draw=draw_controls, live=False),
        "timeline-links": Region(draw=draw_links, quiet=True),
        "timeline-problem": Region(draw=_draw_problem),
        "trace": Region(draw=draw_trace_links, quiet=True),
        "ideal": Region(draw=draw_ideal),
        "spans-title": Region(draw=draw_title, quiet=True),
        "area": Region(draw=draw_area, quiet=True),
        "details": Region(draw=draw_details, quiet=True),
        "counters": Region(draw=draw_counters, quiet=True),
        "span-table": Region(draw=draw_span_table, quiet=True),
    },
    canvases={"timeline": Canvas(key=spans_key, draw=draw_spans, suspects=marked_ranks)},
    control_values=control_values,
    preload=spans_key,
    freshness=_freshness,
)
