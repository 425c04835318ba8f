"""The interface of a page: a skeleton, and parts that are drawn independently.

Components that callbacks use have an id of one of four kinds: a region is replaced, a chart or canvas is redrawn in
place (its zoom stays), and a control sets the field of the address after which it is named.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import plotly.graph_objects as go
from dash.development.base_component import Component

from diagnose.findings import Severity
from ui.dashboard.data import Reads
from ui.dashboard.view_state import ViewState

SEVERITY_COLOURS = {Severity.CRITICAL: "red", Severity.WARNING: "orange", Severity.INFO: "blue"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """Text, tables, links, controls.

    ``live``: drawn again when something has arrived, else only when the address changes.
    ``quiet``: a problem is another region's to tell.
    """

    draw: Callable[[ViewState, Reads], Component | None]
    live: bool = True
    quiet: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A figure; None where there is nothing to draw, and its panel is hidden."""

    draw: Callable[[ViewState, Reads], go.Figure | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Canvas:
    """A ``SpanTimeline``. ``draw``: its data, made only where ``key`` differs from that of the data shown; None where
    there is nothing to draw, and its panel is hidden. ``suspects``: ranks to mark; may take long."""

    key: Callable[[ViewState, Reads], str]
    draw: Callable[[ViewState, Reads], dict[str, object] | None]
    suspects: Callable[[ViewState, Reads], tuple[int, ...]]


ControlValues = Callable[[ViewState, Reads], Mapping[str, object]]


def no_controls(state: ViewState, reads: Reads) -> Mapping[str, object]:
    """The values of a page's controls where it has none."""
    return {}


def facts_alone(state: ViewState, reads: Reads) -> object:
    """What every page about a run asks first."""
    return reads.facts(state)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A view. ``needs_run``: without a run there is nothing to draw; ``needs_step``: nor without a step of it."""

    skeleton: Callable[[], Component]
    regions: Mapping[str, Region] = field(default_factory=dict)
    charts: Mapping[str, Chart] = field(default_factory=dict)
    canvases: Mapping[str, Canvas] = field(default_factory=dict)
    control_values: ControlValues = no_controls
    """What each control shows in a view."""
    ahead: Callable[[ViewState, Reads], object] = facts_alone
    """Asks what the slowest part will ask."""
    needs_run: bool = True
    needs_step: bool = True


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
