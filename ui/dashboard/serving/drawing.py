"""Draw the parts of a page, and turn errors into messages. Every function may block on a query."""

import hashlib
import json
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import dash
import numpy as np
import plotly.graph_objects as go
from dash.development.base_component import Component
from plotly.basedatatypes import BaseTraceType
from plotly.utils import PlotlyJSONEncoder

from diagnose.model.run_state import NotShipping
from telemetry.errors import RankscopeError
from ui.dashboard.address import Parsed
from ui.dashboard.components import stilled, written
from ui.dashboard.data import Reads
from ui.dashboard.data.cache import StillWorking
from ui.dashboard.pages import PAGES
from ui.dashboard.pages.frame import draw_navigation, draw_notes, silence_of
from ui.dashboard.pages.interface import Region
from ui.dashboard.pages.panels import (
    HIDDEN,
    NOTHING_YET,
    READY,
    WAITING,
    empty_store,
    loading,
    no_step,
    notice,
    problem,
    stalled_before_a_step,
)
from ui.dashboard.pages.saved_views import draw_views
from ui.dashboard.view_state import View, ViewState

log = logging.getLogger(__name__)

WAY = Region(draw=draw_navigation, quiet=True)
VIEWS = Region(draw=draw_views, quiet=True)
LOADING_PX = 90
BROKEN = partial(notice, text="The log of the server contains the reason.", colour="red")


class Drawn(NamedTuple):
    """Content for the page. ``key`` identifies it, and ``make`` returns it as JSON of Dash."""

    key: str
    make: Callable[[], Any]


class ChartKey(NamedTuple):
    """Identifies a chart: its kind, a digest of each trace (with commas between), and one of its layout. Zoom persists
    while the kind is the same."""

    kind: str
    traces: str
    rest: str

    def __str__(self) -> str:
        return " ".join(self)

    @classmethod
    def of(cls, figure: go.Figure) -> "ChartKey":
        """The key of a figure. Its ``uirevision`` must be its kind."""
        traces = ",".join(_digest_of_trace(trace) for trace in figure.data)
        return cls(str(figure.layout.uirevision), traces, _digest_of_rest(figure))

    @classmethod
    def parse(cls, text: str | None) -> "ChartKey":
        """The key in a text. Without text, a key that no figure has."""
        kind, traces, rest = ["", "", *(text or "").rsplit(" ", 2)][-3:]
        return cls(kind, traces, rest)


class Plotted(NamedTuple):
    """A chart: its figure or a patch, the style of its graph, the class of its panel, and the text of its
    :class:`ChartKey` (empty if nothing is shown)."""

    figure: go.Figure | dash.Patch | dash.NoUpdate
    style: dict[str, str] | dash.NoUpdate
    panel: str
    kind: str | dash.NoUpdate


class Painted(NamedTuple):
    """A canvas: its spans, or None if they are unchanged or there are none; the choices of the address as properties of
    ``SpanTimeline``; the class of its panel; and a key that identifies the spans."""

    data: dict[str, object] | None
    selected: dict[str, object] | None
    zoom: list[int] | None
    pinned: list[int]
    area: list[int] | None
    panel: str
    kind: str


def draw_page(state: ViewState, reads: Reads) -> Drawn:
    """The skeleton of a view, or a notice instead of it."""
    name, make = _page(state, reads)
    return Drawn(_address(state) + name, lambda: written(make()))


def is_of(key: str | None, state: ViewState) -> bool:
    """Whether the page with this key has the view and run of ``state``. It can be a notice."""
    return key is not None and key.startswith(_address(state))


def _address(state: ViewState) -> str:
    return f"{state.view}/{state.run}/{state.attempt}/"


def _page(state: ViewState, reads: Reads) -> tuple[str, Callable[[], Component]]:
    page = PAGES[state.view]
    try:
        if page.needs_run and not (state.run and reads.attempts(state.run)) and not reads.run_rows():
            return "empty", empty_store
        if page.needs_step and not len(reads.facts(state).steps.step):
            return _before_the_first_step(state, reads)
        if own := page.own_charts(state, reads):
            return f"{len(own)}-charts/page", partial(page.skeleton, own)
    except RankscopeError as error:
        return str(error), partial(problem, error)
    except Exception:
        log.exception("the page could not be drawn: %s", state.search())
        return "broken", partial(BROKEN, "This page could not be drawn")
    return "page", page.skeleton


def _before_the_first_step(state: ViewState, reads: Reads) -> tuple[str, Callable[[], Component]]:
    """The notice of a run without a step. A job can also stall before its first step."""
    run = reads.newest(state)
    try:
        is_stalled = reads.hang(reads.facts(state)) is not None
    except StillWorking:
        is_stalled = True
    known = "-silent" if run.heard.is_silent else "-over" if run.is_over else ""
    if not is_stalled:
        return f"no-step{known}", partial(no_step, run)
    address = replace(state, view=View.HANG, run=run.run_id, attempt=run.attempt).search()
    return f"no-step-stalled{known}", partial(stalled_before_a_step, address, run)


def draw_frame(parsed: Parsed, reads: Reads) -> tuple[Drawn, Drawn, Drawn]:
    """The parts above every page: the tabs, notes, and the menu of saved views."""
    notes = _keyed(draw_notes(parsed.notes, _silence(parsed.state, reads)))
    return _drawn("way", WAY, parsed.state, reads), notes, _drawn("views", VIEWS, parsed.state, reads)


def _silence(state: ViewState, reads: Reads) -> NotShipping | None:
    """The warning that the run is not shipping. None also if the page shows it, or if the run cannot be queried."""
    with suppress(RankscopeError):
        if not (PAGES[state.view].needs_step and not len(reads.facts(state).steps.step)):
            return silence_of(state, reads)
    return None


def draw_region(name: str, state: ViewState, reads: Reads, by_clock: bool) -> Drawn | None:
    """A region of the page. None if it stays unchanged."""
    region = PAGES[state.view].regions.get(name)
    return None if region is None or (by_clock and not region.live) else _drawn(name, region, state, reads)


def _drawn(name: str, region: Region, state: ViewState, reads: Reads) -> Drawn:
    try:
        return _keyed(region.draw(state, reads))
    except StillWorking:
        return _keyed(loading(LOADING_PX))
    except RankscopeError as error:
        return _keyed(None if region.quiet else problem(error))
    except Exception:
        log.exception("region %s could not be drawn: %s", name, state.search())
        return _keyed(BROKEN("This part could not be drawn"))


def draw_chart(name: str, state: ViewState, reads: Reads, shown: str | None) -> Plotted | None:
    """A chart of this view. If the chart ``shown`` is of the same kind, a patch. None if it is unchanged or does not
    exist."""
    chart = PAGES[state.view].charts.get(name)
    if chart is None:
        return None
    before = ChartKey.parse(shown)
    try:
        figure = chart.draw(state, reads)
    except StillWorking:
        unlike_any = dash.no_update if shown is None else str(before._replace(rest="waiting"))
        return Plotted(figure=dash.no_update, style=dash.no_update, panel=WAITING, kind=unlike_any)
    except RankscopeError:
        figure = None
    except Exception:
        log.exception("chart %s could not be drawn: %s", name, state.search())
        figure = None
    if figure is None:
        nothing = Plotted(figure=NOTHING_YET, style={"height": "0"}, panel=HIDDEN, kind="")
        return None if shown == nothing.kind else nothing
    key = ChartKey.of(figure)
    if key == before:
        return None
    change = in_place(figure, key.traces, before.traces) if key.kind == before.kind else figure
    return Plotted(figure=change, style={"height": f"{figure.layout.height}px"}, panel=READY, kind=str(key))


def draw_canvas(name: str, state: ViewState, reads: Reads, shown: str | None) -> Painted | None:
    """A canvas of this view. None if it does not exist. ``shown``: the key of its present spans."""
    canvas, data, key = PAGES[state.view].canvases.get(name), None, ""
    if canvas is None:
        return None
    try:
        key = canvas.key(state, reads)
        data = None if key == shown else canvas.draw(state, reads)
    except RankscopeError:
        key = ""
    except Exception:
        log.exception("canvas %s could not be drawn: %s", name, state.search())
        key = ""
    if data is None and key != shown:
        key = ""
    chosen = state if canvas.chooses else replace(state, span=None, area=None)
    return Painted(
        data=data,
        selected=chosen.span and {"rank": chosen.span.rank, "seq": str(chosen.span.seq)},
        zoom=state.zoom and [*state.zoom],
        pinned=[*state.pins],
        area=chosen.area and [*chosen.area],
        panel=READY if key else HIDDEN,
        kind=key,
    )


def mark_canvas(name: str, state: ViewState, reads: Reads) -> list[int]:
    """The ranks that a canvas of this view marks."""
    canvas = PAGES[state.view].canvases.get(name)
    try:
        return [] if canvas is None else [*canvas.suspects(state, reads)]
    except RankscopeError:
        return []
    except Exception:
        log.exception("the suspects of canvas %s could not be determined: %s", name, state.search())
        return []


def _digest_of_trace(trace: BaseTraceType) -> str:
    content = hashlib.blake2s(digest_size=16)
    for name, value in sorted(trace.to_plotly_json().items()):
        content.update(name.encode())
        content.update(value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode())
    return content.hexdigest()


def _digest_of_rest(figure: go.Figure) -> str:
    rest = json.dumps(figure.layout.to_plotly_json(), cls=PlotlyJSONEncoder, sort_keys=True)
    return hashlib.blake2s(rest.encode(), digest_size=16).hexdigest()


def in_place(figure: go.Figure, traces: str = "", shown: str = "") -> dash.Patch:
    """A patch that keeps the zoom: everything except the ranges of zoomable axes, and traces that are shown already.

    ``traces``, ``shown``: digests of the traces of the figure and of the shown one, as in :class:`ChartKey`.
    """
    change = dash.Patch()
    plain = figure.to_plotly_json()
    new, old = traces.split(","), shown.split(",")
    if traces and len(new) == len(old):
        for number in range(len(new)):
            if new[number] != old[number]:
                change["data"][number] = plain["data"][number]
    else:
        change["data"] = plain["data"]
    for name, value in plain["layout"].items():
        if not name.startswith(("xaxis", "yaxis")):
            change["layout"][name] = value
            continue
        for key, setting in value.items():
            if value.get("fixedrange") or key not in ("range", "autorange"):
                change["layout"][name][key] = setting
    return change


def _keyed(component: Component | None) -> Drawn:
    """A component with a key of its content without the values of controls. The values are set separately, so that a
    control in use is not replaced."""
    content = written(component)
    key = json.dumps(_without_values(content), sort_keys=True)
    return Drawn(hashlib.blake2s(key.encode(), digest_size=16).hexdigest(), partial(stilled, content))


def _without_values(content: Any) -> Any:
    if isinstance(content, list):
        return [_without_values(value) for value in content]
    if not isinstance(content, dict):
        return content
    is_control = isinstance(content.get("id"), dict) and "control" in content["id"]
    return {name: _without_values(value) for name, value in content.items() if not (is_control and name == "value")}
