"""The callbacks that draw a page: after a new address, and after new data.

address --> page: if it is another one, its skeleton with the parts that are ready --> here --> the other parts
clock   --> known: the freshness of the stored data; if it changed --> freshness --> the live parts
"""

import time
from typing import Any

import dash
from dash import MATCH, ClientsideFunction, Input, Output, State, ctx, no_update
from starlette.concurrency import run_in_threadpool

from ui.dashboard.address import parse_search
from ui.dashboard.data import Reads
from ui.dashboard.pages.frame import TAB_TITLE
from ui.dashboard.serving.drawing import (
    Drawn,
    draw_canvas,
    draw_chart,
    draw_frame,
    draw_page,
    draw_region,
    is_of,
    mark_canvas,
)
from ui.dashboard.serving.first_answer import Preload, first_answer
from ui.dashboard.serving.live import freshness

ADDRESS = Input("url", "search")
SEARCH = State("url", "search")
DRAWN = State("page", "data-drawn")
"""The key of the page that is shown."""
HERE = Input("here", "data")
"""Set when a page is shown and some of its parts are missing. ``search``: its address. ``some``: whether other parts
came with the page. These stay unchanged."""
ARRIVED = Input("freshness", "data")
LOST_AFTER_S = 8.0
"""A page that was answered but is not shown after this time is lost, and is requested again."""


def keep_fresh(app: dash.Dash, reads: Reads, drawing: list[str | None]) -> None:
    """Poll for new data. The freshness changes only if there is some.

    A page that is being loaded includes its freshness. If it does not arrive within LOST_AFTER_S, it is requested
    again: an earlier request would cancel it. ``drawing``: addresses of pages that are being drawn.
    """

    async def ask(_: Any, search: str | None, shown: str | None, known: Any) -> Any:
        state = parse_search(search).state
        if not is_of(shown, state):
            missed = known if isinstance(known, dict) and known["awaited"] == search else None
            if missed is None:
                return no_update, {"awaited": search, "since_s": time.time()}, no_update
            if search in drawing or time.time() - missed["since_s"] < LOST_AFTER_S:
                return no_update, no_update, no_update
        found, banner = await run_in_threadpool(freshness, state, reads)
        return (no_update, no_update, banner) if found == known else (found, found, banner)

    app.callback(
        Output("freshness", "data"),
        Output("known", "data"),
        Output("connection", "children"),
        Input("clock", "n_intervals"),
        SEARCH,
        DRAWN,
        State("known", "data"),
        prevent_initial_call=True,
    )(ask)


def keep_page(app: dash.Dash, reads: Reads, ahead: Preload, drawing: list[str | None]) -> None:
    """Draw the skeleton again if the view or the run changes, or if a problem appears or ends. Parts that are ready
    come with it, and the browser scrolls to the selected suspect. ``drawing``: see :func:`keep_fresh`."""

    async def draw(search: str | None, _: Any, shown: str | None) -> Any:
        drawing.append(search)
        try:
            return await answer(search, shown)
        finally:
            drawing.remove(search)

    async def answer(search: str | None, shown: str | None) -> Any:
        state = parse_search(search).state
        if shown and not is_of(shown, state):
            ahead.begin(state)
        drawn = await run_in_threadpool(draw_page, state, reads)
        if drawn.key == shown:
            return no_update, no_update, {"search": search, "some": False}, no_update, no_update
        known, banner = await run_in_threadpool(freshness, state, reads)
        first = await first_answer(drawn.make(), state, reads)
        here = no_update if first.is_whole else {"search": search, "some": True}
        return first.page, drawn.key, here, known, banner

    app.callback(
        Output("page", "children"),
        Output("page", "data-drawn"),
        Output("here", "data"),
        Output("known", "data", allow_duplicate=True),
        Output("connection", "children", allow_duplicate=True),
        ADDRESS,
        ARRIVED,
        DRAWN,
        prevent_initial_call="initial_duplicate",
    )(draw)
    app.clientside_callback(ClientsideFunction("rankscope", "showSuspect"), Input("page", "data-drawn"))


def keep_frame(app: dash.Dash, reads: Reads) -> None:
    """Draw the tabs, notes and saved views above every page, and set the title of the browser's tab."""

    async def draw(search: str | None, _: Any, *shown: str | None) -> Any:
        drawn = await run_in_threadpool(draw_frame, parse_search(search), reads)
        return [value for part, key in zip(drawn, shown, strict=True) for value in await _unless_there(part, key)]

    app.callback(
        [Output(name, content) for name in ("way", "notes", "views") for content in ("children", "data-drawn")],
        ADDRESS,
        ARRIVED,
        State("way", "data-drawn"),
        State("notes", "data-drawn"),
        State("views", "data-drawn"),
    )(draw)
    set_title = ClientsideFunction("rankscope", "setTitle")
    app.clientside_callback(set_title, Output("way", "data-title"), Input(TAB_TITLE, "data"))


def keep_regions(app: dash.Dash, reads: Reads) -> None:
    """Draw each region in its own request. A region with unchanged content is not replaced."""

    async def draw(here: Any, _: Any, search: str | None, shown: str | None) -> Any:
        if came_with_page(here, shown):
            return no_update, no_update
        name = str(ctx.outputs_list[0]["id"]["region"])
        # The clock may request a new region before the address does.
        by_clock = ctx.triggered_id == "freshness" and shown is not None
        drawn = await run_in_threadpool(draw_region, name, parse_search(search).state, reads, by_clock)
        return await _unless_there(drawn, shown)

    app.callback(
        Output({"region": MATCH}, "children"),
        Output({"region": MATCH}, "data-drawn"),
        HERE,
        ARRIVED,
        SEARCH,
        State({"region": MATCH}, "data-drawn"),
        prevent_initial_call=True,
    )(draw)


def came_with_page(here: Any, shown: str | None) -> bool:
    """Whether a part came with its page, and is requested only because other parts were late."""
    return shown is not None and [*ctx.triggered_prop_ids] == ["here.data"] and here["some"]


async def _unless_there(drawn: Drawn | None, shown: str | None) -> tuple[Any, Any]:
    if drawn is None or drawn.key == shown:
        return no_update, no_update
    return await run_in_threadpool(drawn.make), drawn.key


def keep_charts(app: dash.Dash, reads: Reads) -> None:
    """Draw each chart in its own request, in place."""

    async def draw(here: Any, _: Any, search: str | None, shown: str | None) -> Any:
        name, plotted = str(ctx.outputs_list[0]["id"]["chart"]), None
        if not came_with_page(here, shown):
            plotted = await run_in_threadpool(draw_chart, name, parse_search(search).state, reads, shown)
        return plotted or (no_update,) * 4

    graph, panel = {"chart": MATCH, "part": "graph"}, {"chart": MATCH, "part": "panel"}
    app.callback(
        Output(graph, "figure"),
        Output(graph, "style"),
        Output(panel, "className"),
        Output(panel, "data-kind"),
        HERE,
        ARRIVED,
        SEARCH,
        State(panel, "data-kind"),
        prevent_initial_call=True,
    )(draw)


def keep_canvases(app: dash.Dash, reads: Reads) -> None:
    """Draw each canvas in its own request: its spans if they changed, and the choices of the address."""

    async def draw(here: Any, _: Any, search: str | None, shown: str | None) -> Any:
        name, painted = str(ctx.outputs_list[0]["id"]["canvas"]), None
        if not came_with_page(here, shown):
            painted = await run_in_threadpool(draw_canvas, name, parse_search(search).state, reads, shown)
        if painted is None:
            return (no_update,) * 7
        return (no_update if painted.kind == shown else painted.data, *painted[1:])

    spans, panel = {"canvas": MATCH, "part": "spans"}, {"canvas": MATCH, "part": "panel"}
    app.callback(
        Output(spans, "data"),
        Output(spans, "selected"),
        Output(spans, "zoom"),
        Output(spans, "pinned"),
        Output(spans, "area"),
        Output(panel, "className"),
        Output(panel, "data-kind"),
        HERE,
        ARRIVED,
        SEARCH,
        State(panel, "data-kind"),
        prevent_initial_call=True,
    )(draw)


def mark_suspects(app: dash.Dash, reads: Reads) -> None:
    """Mark the suspects when the detectors are ready. The picture does not wait for them."""

    async def mark(_: Any, __: Any, search: str | None, shown: Any) -> Any:
        name = str(ctx.outputs_list["id"]["canvas"])
        marked = await run_in_threadpool(mark_canvas, name, parse_search(search).state, reads)
        return no_update if marked == shown else marked

    spans = {"canvas": MATCH, "part": "spans"}
    app.callback(Output(spans, "suspects"), HERE, ARRIVED, SEARCH, State(spans, "suspects"))(mark)
