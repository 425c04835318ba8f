"""The statistics of a marked area of the timeline, as a table."""

from dataclasses import replace

import dash_mantine_components as dmc
from dash import dcc, html
from dash.development.base_component import Component

from ui.dashboard.figures.area import StageStatistics
from ui.dashboard.figures.style import STAGE_COLOURS
from ui.dashboard.view_state import Area, ViewState
from ui.dashboard.wording import count, duration, ranks_in_words

HEADINGS = ("stage", "count", "total", "mean", "longest")


def area_details(area: Area, ranks: tuple[int, ...], found: list[StageStatistics], state: ViewState) -> Component:
    """``ranks``: those within the area."""
    close = dcc.Link("Clear", href=replace(state, area=None).search(), className="close")
    where = f"{count(len(ranks), 'rank')} ({ranks_in_words(sorted(ranks), counted=False)})"
    when = f"{duration(area.last_ns - area.first_ns)} from {duration(area.first_ns)}"
    return dmc.Stack(
        [
            html.Div([html.H2("Marked area", className="panel-title"), close], className="details-head"),
            dmc.Text(f"{where}, {when}. Of spans that reach beyond it the part inside counts.", size="xs", c="dimmed"),
            _table(found) if found else dmc.Text("No span lies in it.", size="sm"),
        ],
        gap="xs",
        mb="md",
    )


def _table(found: list[StageStatistics]) -> Component:
    head = html.Thead(html.Tr([html.Th(name, scope="col") for name in HEADINGS]))
    return html.Table([head, html.Tbody([_row(one) for one in found])], className="shares area-statistics")


def _row(one: StageStatistics) -> Component:
    swatch = html.Span(className="swatch", style={"background": STAGE_COLOURS[one.stage]})
    times = (one.total_ns, one.mean_ns, one.longest_ns)
    cells = [f"{one.count:,}", *(duration(ns) for ns in times)]
    return html.Tr([html.Td([swatch, one.stage.label]), *(html.Td(cell) for cell in cells)])
