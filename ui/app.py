"""The dashboard: a Dash application whose address decides everything that is shown.

address --> skeleton of the page --> regions, each drawn on its own by a pure page function from cached answers
   ^                                    |
   +---- controls, clicks, links  <-----+        every two seconds: has anything arrived? then the live regions again
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import dash
import dash_mantine_components as dmc
from dash import ALL, MATCH, Input, Output, State, ctx, no_update
from dash.development.base_component import Component
from fastapi import FastAPI

from telemetry.errors import RankscopeError, UnknownRunError
from telemetry.stores.reader import Reader
from ui.pages import PAGES
from ui.pages.controls import after_click, after_controls, changed_by_hand
from ui.pages.frame import draw_notes, draw_way, layout
from ui.pages.interface import Draw
from ui.pages.states import empty_store, no_step_yet, notice, problem
from ui.reads import Reads
from ui.view_state import View, ViewState, parse_search

log = logging.getLogger(__name__)

dmc.pre_render_color_scheme()


def mount_dashboard(server: FastAPI, reader: Reader) -> dash.Dash:
    """Serve the dashboard at ``/`` of a server. Call it last: it takes every path that has no route yet.

    It lives in an application of its own below the server's, so that its middleware touches no other route, and its
    callbacks query in threads, so that a slow store never holds up the server's loop.
    """
    app = make_dashboard(reader)
    server.mount("/", app.server)
    return app


def make_dashboard(reader: Reader) -> dash.Dash:
    """The Dash application over whoever answers queries."""
    app = dash.Dash(
        "ui.app",
        server=FastAPI(docs_url=None, redoc_url=None, openapi_url=None),
        backend="fastapi",
        title="rankscope",
        update_title="",
        serve_locally=True,
        suppress_callback_exceptions=True,
        enable_mcp=False,
        compress=True,
    )
    app.layout = layout()
    reads = Reads(reader)
    _keep_page(app, reads)
    _keep_regions(app, reads)
    _keep_fresh(app, reads)
    _follow_hands(app)
    return app


def _keep_page(app: dash.Dash, reads: Reads) -> None:
    """The skeleton: drawn anew when the view or the run changes, or when a problem comes or goes."""

    async def draw_page(search: str | None, _: Any, shown: str | None) -> Any:
        state = parse_search(search).state
        name, draw = await asyncio.to_thread(_page, state, reads)
        key = f"{state.view}/{state.run}/{state.attempt}/{name}"
        return (no_update, no_update) if key == shown else (draw(), key)

    app.callback(
        Output("page", "children"),
        Output("shown-page", "data"),
        Input("url", "search"),
        Input("freshness", "data"),
        State("shown-page", "data"),
    )(draw_page)


def _page(state: ViewState, reads: Reads) -> tuple[str, Callable[[], Component]]:
    """The skeleton of a view and its name, or what stands in its place."""
    page = PAGES[state.view]
    try:
        if page.needs_run and not reads.runs():
            return "empty", empty_store
        if page.needs_run and not len(reads.facts(state).steps.step) and page.needs_steps:
            return "no-step", no_step_yet
    except RankscopeError as error:
        return str(error), partial(problem, error)
    return "page", page.skeleton


def _keep_regions(app: dash.Dash, reads: Reads) -> None:
    """Each region by itself, so that none waits for another."""

    async def draw_region(search: str | None, _: Any) -> Any:
        name = str(ctx.outputs_list["id"]["region"])
        by_clock = ctx.triggered_id == "freshness"
        parsed = parse_search(search)
        if name == "notes":
            return no_update if by_clock else draw_notes(parsed.state, parsed.notes)
        if name == "way":
            return await asyncio.to_thread(_drawn, draw_way, parsed.state, reads, True)
        region = PAGES[parsed.state.view].regions.get(name)
        if region is None or (by_clock and not region.live):
            return no_update
        return await asyncio.to_thread(_drawn, region.draw, parsed.state, reads, False)

    app.callback(Output({"region": MATCH}, "children"), Input("url", "search"), Input("freshness", "data"))(draw_region)


def _drawn(draw: Draw, state: ViewState, reads: Reads, quiet: bool) -> Any:
    """The region, or what went wrong and what to do; nothing where the page itself says so."""
    try:
        return draw(state, reads)
    except RankscopeError as error:
        return None if quiet else problem(error)
    except Exception:
        log.exception("a region of the dashboard could not be drawn: %s", state.search())
        return None if quiet else notice("This part could not be drawn", "The server's log says why.", colour="red")


def _keep_fresh(app: dash.Dash, reads: Reads) -> None:
    """Every two seconds: what is stored by now. The answer changes only when something has arrived."""

    async def look(_: Any, search: str | None, known: Any) -> Any:
        found, banner = await asyncio.to_thread(_look, parse_search(search).state, reads)
        return (no_update if found == known else found), banner

    app.callback(
        Output("freshness", "data"),
        Output("connection", "children"),
        Input("clock", "n_intervals"),
        State("url", "search"),
        State("freshness", "data"),
        prevent_initial_call=True,
    )(look)


def _look(state: ViewState, reads: Reads) -> tuple[list[Any], Component | None]:
    try:
        if state.view is View.RUNS:
            return [[run.run_id, run.attempt, run.last_ns, run.state] for run in reads.runs()], None
        run = reads.newest(state)
        return [run.run_id, run.attempt, run.last_step, run.last_ns, run.state], None
    except UnknownRunError as error:
        return [error.message], None
    except RankscopeError as error:
        return [error.message], problem(error)


def _follow_hands(app: dash.Dash) -> None:
    """A control or a click changes the address, and nothing else."""

    def follow(_: Any, __: Any, shown: list[dict[str, Any]], search: str | None) -> Any:
        state = parse_search(search).state
        controls, graphs = ctx.inputs_list
        values = {item["id"]["control"]: item.get("value") for item in controls}
        after = after_controls(state, changed_by_hand(values, shown[0] if shown else {}))
        clicked = ctx.triggered_id.get("graph") if isinstance(ctx.triggered_id, dict) else None
        for item in graphs:
            if item["id"]["graph"] == clicked and item.get("value"):
                after = after_click(after, str(clicked), item["value"]["points"][0])
        return no_update if after == state else after.search()

    app.callback(
        Output("url", "search"),
        Input({"control": ALL}, "value"),
        Input({"graph": ALL}, "clickData"),
        State({"shown": ALL}, "data"),
        State("url", "search"),
        prevent_initial_call=True,
    )(follow)
