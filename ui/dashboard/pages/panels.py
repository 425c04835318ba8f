"""Boxes that a page is made of: a chart or a canvas under its heading, a heading with text."""

import dash_mantine_components as dmc
import plotly.graph_objects as go
from dash import dcc, html
from dash.development.base_component import Component

from ui.dashboard.figures.style import GRAPH_CONFIG
from ui.dashboard.pages.interface import canvas_id, canvas_panel_id, chart_id, panel_id
from ui.dashboard.span_timeline import SpanTimeline

NOTHING_YET = go.Figure(layout={"template": "none", "xaxis": {"visible": False}, "yaxis": {"visible": False}})
"""Axes that nobody sees are not drawn, and then drawn anew."""
WAITING, READY, HIDDEN = "panel waiting", "panel", "panel hidden"
"""Classes of a chart's panel: before its first figure, with one, with nothing to draw."""


def chart_panel(name: str, head: Component, *, label: str, height_px: int) -> Component:
    """A chart under ``head``. ``label``: what it shows, in words; ``height_px``: until it is drawn."""
    graph = dcc.Graph(
        id=chart_id(name),
        figure=NOTHING_YET,
        config=GRAPH_CONFIG,
        style={"height": f"{height_px}px"},
    )
    figure = html.Div(graph, role="figure", className="figure", **{"aria-label": label})
    return html.Section([head, figure], id=panel_id(name), className=WAITING)


def canvas_panel(name: str, head: Component, *, label: str) -> Component:
    """A canvas of spans under ``head``. ``label``: what it shows, in words."""
    return html.Section(
        [head, SpanTimeline(id=canvas_id(name), label=label)], id=canvas_panel_id(name), className=WAITING
    )


def panel(title: str, body: Component) -> Component:
    """Text under a heading."""
    return html.Section([heading(title), body], className=READY)


def card(name: str, value: str, note: str) -> Component:
    """A number, what it is, and a word about it."""
    lines = [
        dmc.Text(name, size="xs", c="dimmed"),
        dmc.Text(value, className="number"),
        dmc.Text(note, size="xs", c="dimmed"),
    ]
    return dmc.Paper(lines, withBorder=True, p="sm")


def heading(title: str) -> Component:
    return html.H2(title, className="panel-title")
