"""The statistics of a marked area of the timeline."""

import math
from dataclasses import replace

import dash_mantine_components as dmc
from dash import dcc, html
from dash.development.base_component import Component

from ui.dashboard.data import Reads
from ui.dashboard.figures.style import STAGE_COLOURS
from ui.dashboard.pages.timeline.row_order import ordered_ranks
from ui.dashboard.pages.timeline.selection import displayed, selection, spans
from ui.dashboard.pages.timeline.step_shares import StageStatistics, ranks_within, statistics
from ui.dashboard.view_state import Area, ViewState
from ui.dashboard.wording import count, duration, ranks_text

HEADINGS = ("stage", "count", "total", "mean", "longest")
UNITS_NS = {"s": 1e9, "ms": 1e6, "µs": 1e3}


def area_details(area: Area, ranks: tuple[int, ...], found: list[StageStatistics], state: ViewState) -> Component:
    """The statistics of a marked area. ``ranks``: the ranks within it."""
    close = dcc.Link("Clear", href=replace(state, area=None).search(), className="close")
    where = f"{count(len(ranks), 'rank')} ({ranks_text(sorted(ranks), counted=False)})"
    when = time_range(area.first_ns, area.last_ns)
    return dmc.Stack(
        [
            html.Div([html.H2("Marked area", className="panel-title"), close], className="details-head"),
            dmc.Text(
                f"{where}, {when}. If a span crosses the edge of the area, only its part inside is counted.",
                size="xs",
                c="dimmed",
            ),
            _table(found) if found else dmc.Text("The area contains no span.", size="sm"),
        ],
        gap="xs",
        mb="md",
    )


def time_range(first_ns: int, last_ns: int) -> str:
    """A time range such as ``100 to 300 ms`` or ``2.250 to 2.310 s``. Its unit is the largest one of which the end is
    at least two, as on the axis. It has enough digits to show two digits of the difference."""
    name, unit_ns = next((unit for unit in UNITS_NS.items() if last_ns >= 2 * unit[1]), ("ns", 1.0))
    digits = max(0, math.ceil(1 - math.log10(max(last_ns - first_ns, 1) / unit_ns)))
    return f"{first_ns / unit_ns:.{digits}f} to {last_ns / unit_ns:.{digits}f} {name}"


def _table(found: list[StageStatistics]) -> Component:
    head = html.Thead(html.Tr([html.Th(name, scope="col") for name in HEADINGS]))
    return html.Table([head, html.Tbody([_row(statistic) for statistic in found])], className="shares area-statistics")


def _row(row: StageStatistics) -> Component:
    swatch = html.Span(className="swatch", style={"background": STAGE_COLOURS[row.stage]})
    times = (duration(ns) for ns in (row.total_ns, row.mean_ns, row.longest_ns))
    return html.Tr([html.Td(cell) for cell in ([swatch, row.stage.label], f"{row.count:,}", *times)])


def draw_area(state: ViewState, reads: Reads) -> Component | None:
    if state.area is None:
        return None
    shown = selection(state, reads)
    ranks = ranks_within(state.area, displayed(state, ordered_ranks(state.timeline.order, shown, reads)))
    return area_details(state.area, ranks, statistics(spans(shown, reads), state.area, ranks), state)
