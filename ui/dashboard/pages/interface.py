"""The interface of a page: a skeleton, and parts that are drawn independently.

Components that callbacks use have an id of one of four kinds. A region is replaced. A chart or canvas is redrawn in
place, so that its zoom stays. A control sets the field of the address that has its name.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import plotly.graph_objects as go
from dash.development.base_component import Component

from diagnose.findings import Severity
from ui.dashboard.data import Reads
from ui.dashboard.view_state import ViewState

SEVERITY_COLOURS = {Severity.CRITICAL: "red", Severity.WARNING: "orange", Severity.INFO: "blue"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """A part of a page with text, tables, links or controls.

    ``live``: whether it is drawn again when new data arrives. Otherwise it is drawn only when the address changes.
    ``quiet``: whether it shows no errors, because another region of the page shows them.
    """

    draw: Callable[[ViewState, Reads], Component | None]
    live: bool = True
    quiet: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A figure. If ``draw`` returns None, the panel is hidden.

    ``after_drag``: the view after a drag along its x axis, from one value to another. Values come from the browser:
    numbers, on a time axis milliseconds in the time zone of the server. ``after_click``: the view after a click on a
    point as plotly describes it. If it is None, ``pages/controls.py`` handles the click.
    """

    draw: Callable[[ViewState, Reads], go.Figure | None]
    after_drag: Callable[[ViewState, Reads, object, object], ViewState] | None = None
    after_click: Callable[[ViewState, Reads, Mapping[str, Any]], ViewState] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Canvas:
    """A ``SpanTimeline``.

    ``key``: returns a text that identifies the data. ``draw``: returns the data; called only if the key changed. If it
    returns None, the panel is hidden. ``suspects``: returns the ranks to mark, and can be slow.
    """

    key: Callable[[ViewState, Reads], str]
    draw: Callable[[ViewState, Reads], dict[str, object] | None]
    suspects: Callable[[ViewState, Reads], tuple[int, ...]]
    chooses: bool = True
    """Whether the span and the area that a user chooses are part of the address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The page of a view. ``title``: the title of its tab. ``skeleton``: returns the empty page, which is drawn at
    once. It gets the names of ``own_charts`` if there are any."""

    title: str
    skeleton: Callable[..., Component]
    own_charts: Callable[[ViewState, Reads], Sequence[str]] = lambda state, reads: ()
    """Names of charts that only some runs have. Their number must not change often: the page is drawn again then."""
    regions: Mapping[str, Region] = field(default_factory=dict)
    charts: Mapping[str, Chart] = field(default_factory=dict)
    canvases: Mapping[str, Canvas] = field(default_factory=dict)
    control_values: Callable[[ViewState, Reads], Mapping[str, object]] = lambda state, reads: {}
    """The value of each control in a view."""
    preload: Callable[[ViewState, Reads], object] = lambda state, reads: reads.facts(state)
    """Sends the queries of the slowest part, while the browser loads the scripts."""
    freshness: Callable[[ViewState, Reads], Sequence[object]] = lambda state, reads: ()
    """Values that change when the page has something new to draw, besides new steps of its run."""
    needs_run: bool = True
    """Whether the page is about one run. Otherwise it can be about all runs."""
    needs_step: bool = True
    """Whether the page needs a completed step."""


def region_id(name: str) -> dict[str, str]:
    return {"region": name}


def chart_id(name: str) -> dict[str, str]:
    return {"chart": name, "part": "graph"}


def panel_id(name: str) -> dict[str, str]:
    """The panel around a chart."""
    return {"chart": name, "part": "panel"}


def canvas_id(name: str) -> dict[str, str]:
    return {"canvas": name, "part": "spans"}


def canvas_panel_id(name: str) -> dict[str, str]:
    """The panel around a canvas."""
    return {"canvas": name, "part": "panel"}


def control_id(name: str) -> dict[str, str]:
    return {"control": name}
