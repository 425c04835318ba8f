"""Open stages as text: a table of the ranks in the unfinished step, and the details of one open span."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import dash_mantine_components as dmc
from dash import dcc, html
from dash.development.base_component import Component

from telemetry.stages import Stage
from ui.dashboard.figures.style import STAGE_COLOURS
from ui.dashboard.pages.panels import facts_list
from ui.dashboard.pages.timeline.open_spans import OpenSpan
from ui.dashboard.pages.timeline.span_details import scrolled
from ui.dashboard.records import RunFacts
from ui.dashboard.view_state import View, ViewState
from ui.dashboard.wording import clock, ranks_text, stamp


def open_stages(opened: Sequence[OpenSpan], suspects: Sequence[int], state: ViewState) -> Component:
    """The stage that each rank is in, and which ranks it waits for."""
    step = max(span.step for span in opened)
    head = html.Tr([html.Th(name, scope="col") for name in ("rank", "in stage", "for", "waits for")])
    rows = [_row(span, span.rank in suspects) for span in opened]
    seen_ns = max(span.seen_ns for span in opened)
    return dmc.Stack(
        [
            dmc.Title(f"Step {step} is not complete", order=2, className="panel-title"),
            scrolled(html.Table([html.Thead(head), html.Tbody(rows)], className="shares open-stages"), len(rows)),
            dmc.Text(
                f"The stage of each rank when the agents last read it: {stamp(seen_ns)}. A hatched bar has no end yet. "
                "The time axis ends shortly after the last recorded span. So a stage that began later is drawn near "
                "the end of the axis, not at its time.",
                size="xs",
                c="dimmed",
            ),
            dcc.Link("Show hang view", href=replace(state, view=View.HANG, span=None).search(), className="small"),
        ],
        gap="xs",
    )


def _row(span: OpenSpan, suspect: bool) -> Component:
    stage = "between stages" if span.stage is Stage.STEP else span.stage.label
    waits = ranks_text(span.waits_for) if span.waits_for else ""
    cells = (f"▶ {span.rank}" if suspect else str(span.rank), stage, span.lasts.removeprefix("for "), waits)
    return html.Tr([html.Td(cell) for cell in cells], className="suspect" if suspect else "")


def open_span_details(span: OpenSpan, facts: RunFacts, state: ViewState) -> Component:
    """The facts of one open span."""
    swatch = html.Span(className="swatch", style={"background": STAGE_COLOURS[span.stage]})
    close = dcc.Link("Close", href=replace(state, span=None).search(), className="close")
    title = [swatch, span.stage.label, ", open"]
    return dmc.Stack(
        [
            html.Div([html.H2(title, className="panel-title"), close], className="details-head"),
            facts_list(_facts(span, facts)),
        ],
        gap="sm",
    )


def _facts(span: OpenSpan, facts: RunFacts) -> Iterator[tuple[str, str]]:
    yield "rank", str(span.rank)
    yield "place", facts.place(span.rank)
    yield "host", facts.hosts[span.rank] or "unknown"
    yield "step", str(span.step)
    yield "open since", stamp(span.since_ns)
    yield "open", span.lasts
    yield "last seen", clock(span.seen_ns)
    if span.operation:
        yield "operation", span.operation
    if span.waits_for:
        yield "waits for", f"rank{'s' * (len(span.waits_for) > 1)} {ranks_text(span.waits_for)}"
