"""Boxes that a page is made of: a chart or a canvas under its heading, a heading with text.

The timeline as a Dash component. The browser's half is ``assets/timeline/``: plain scripts that Dash serves.
"""

from typing import Any, ClassVar

import dash_mantine_components as dmc
import plotly.graph_objects as go
from dash import dcc, html
from dash.development.base_component import Component

from ui.dashboard.figures.style import GRAPH_CONFIG
from ui.dashboard.pages.interface import canvas_id, canvas_panel_id, chart_id, panel_id


class SpanTimeline(Component):  # type: ignore[misc]
    """Spans of some ranks on a canvas that is zoomed, searched and clicked.

    What it is given:

    * ``data``: what ``ui.dashboard.figures.spans_buffer`` makes; None draws nothing
    * ``selected``: ``{"rank": 5, "seq": "1042"}``, or None
    * ``zoom``: ``[first, last]`` in nanoseconds from the earliest span; None shows all
    * ``pinned``: ranks whose rows stay at the top
    * ``area``: ``[first, last, top, bottom]``: two times as in ``zoom``, ranks of the outer rows; or None
    * ``suspects``: ranks that are marked
    * ``theme``: ``light``, ``dark``, or ``auto``: as the page is

    What it tells, each with a ``number`` that grows, so that the same answer twice is told twice:

    * ``clicked``: ``{"rank", "seq", "number"}`` of the span chosen by pointer or key; ``rank`` is None: none any more
    * ``hovered``: the same of the span under the pointer, a moment after it has come to rest
    * ``zoomed``: ``{"range": [first, last] or None, "number"}``, once zoom and pan have come to rest
    * ``marked``: ``{"area": [first, last, top, bottom] or None, "number"}``
    * ``pins``: ``{"ranks": [...], "number"}``
    """

    _namespace = "rankscope"
    _type = "SpanTimeline"
    _children_props: ClassVar[list[str]] = []
    _base_nodes: ClassVar[list[str]] = []
    _valid_wildcard_attributes: ClassVar[list[str]] = []
    available_wildcard_properties: ClassVar[list[str]] = []
    _prop_names: ClassVar[list[str]] = [
        "id",
        "label",
        "data",
        "selected",
        "zoom",
        "pinned",
        "area",
        "suspects",
        "theme",
        "clicked",
        "hovered",
        "zoomed",
        "marked",
        "pins",
    ]
    available_properties: ClassVar[list[str]] = _prop_names

    def __init__(self, **props: Any) -> None:
        """``id``, ``label`` (what the picture shows, in words) and the properties above.

        Raises:
            TypeError: a property that it does not have.
        """
        super().__init__(**props)


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
