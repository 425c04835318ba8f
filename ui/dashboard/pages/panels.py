"""The building blocks of pages: panels with charts, canvases or text, and notices for pages without data.

:class:`SpanTimeline` is the timeline as a Dash component; its browser part is ``assets/timeline/``.
"""

from typing import Any, ClassVar

import dash_mantine_components as dmc
import plotly.graph_objects as go
from dash import dcc, html
from dash.development.base_component import Component

from diagnose.model.run_state import not_shipping
from telemetry.errors import RankscopeError
from ui.dashboard.figures.style import GRAPH_CONFIG
from ui.dashboard.pages.interface import canvas_id, canvas_panel_id, chart_id, panel_id
from ui.dashboard.records import RunSummary
from ui.dashboard.wording import capitalized, stamp

START = "rankscope demo"
RECORD = """import telemetry

telemetry.start()          # reads the rank from the environment of torchrun
with telemetry.step(number):
    with telemetry.span("forward-compute"):
        ..."""


def problem(error: RankscopeError) -> Component:
    """A fault and the way out of it."""
    text = [capitalized(error.hint) + ". ", dcc.Link("List of runs", href="?view=runs")]
    return notice(error.message, text, colour="red")


def notice(title: str, text: str | list[str | Component], *, colour: str = "gray") -> Component:
    """A sentence and what follows from it."""
    return dmc.Alert(
        html.Div(text, className="notice-text"), title=title, color=colour, variant="light", className="notice"
    )


def empty_store() -> Component:
    """No run is stored: how to get one."""
    return dmc.Stack(
        [
            dmc.Title("No run yet", order=2),
            dmc.Text("This page updates automatically when a run reports. There are two ways to start one:"),
            dmc.Text("A training run of eight ranks on this machine, one of them slow:", fw=600, mt="sm"),
            dmc.Code(START, block=True),
            dmc.Text("Your own training loop:", fw=600, mt="sm"),
            dmc.Code(RECORD, block=True),
            dmc.Text("Set RANKSCOPE_COLLECTOR to the address of this page.", size="sm", c="dimmed"),
        ],
        gap="xs",
        maw=640,
        mx="auto",
        mt="xl",
        className="empty",
    )


def no_step(run: RunSummary) -> Component:
    """Ranks have reported, no step is stored: what is known of the reason."""
    if silent := not_shipping(run.heard):
        return notice(capitalized(silent.sentence), f"No step is stored. Next: {silent.next_step}.", colour="orange")
    if run.is_over:
        return notice(
            "No step was recorded",
            f"The last heartbeat of the run arrived at {stamp(run.heard.heard_ns)}. Read the log of the training, and "
            "check that the loop ran inside telemetry.step(number).",
        )
    return notice(
        "No step recorded yet",
        "The ranks have reported. This page updates automatically when the first step ends. If it does not, read the "
        "log of the training, and check that the loop runs inside telemetry.step(number).",
    )


def stalled_before_a_step(hang_view: str, run: RunSummary) -> Component:
    """The first step does not end, and the agents have looked why. ``hang_view``: the address that tells."""
    link = dcc.Link("Show hang view", href=hang_view, className="button primary")
    title = "The first step did not end" if run.is_over else "The first step does not end"
    return notice(title, [html.P("The agents have collected evidence from the ranks."), link])


def at_work(text: str) -> Component:
    """Stands where something is drawn that takes its time. ``text``: what is being done."""
    lines = [dmc.Loader(size="sm"), dmc.Text(text, size="sm")]
    return html.Div(dmc.Group(lines, gap="sm", p="md"), className="loading", role="status", **{"aria-busy": "true"})


def loading(height_px: int) -> Component:
    """Stands where a region will be drawn."""
    return html.Div(
        [dmc.Skeleton(height=height_px, radius="sm"), dmc.VisuallyHidden("loading")],
        className="loading",
        **{"aria-busy": "true"},
    )


class SpanTimeline(Component):  # type: ignore[misc]
    """Spans of some ranks on a canvas that is zoomed, searched and clicked.

    What it is given:

    * ``data``: what ``ui.dashboard.pages.timeline.spans_buffer`` makes; None draws nothing
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
