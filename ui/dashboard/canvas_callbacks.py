"""The callbacks of a canvas: from the address to the picture, and from pointer and keys back to the address.

address --> spans (only when others are to be shown), what is chosen, marked and pinned, where it is zoomed to
   ^                                        |
   +---- pointer and keys on the canvas <---+      in the browser alone: assets/address.js
"""

from typing import Any

import dash
from dash import ALL, MATCH, ClientsideFunction, Input, Output, State, no_update
from starlette.concurrency import run_in_threadpool

from ui.dashboard.address import parse_search
from ui.dashboard.callbacks import ARRIVED, HERE, SEARCH, came_with_page
from ui.dashboard.data import Reads
from ui.dashboard.drawing import draw_canvas, mark_canvas

HANDS = ("clicked", "marked", "pins", "zoomed")
"""Properties that tell what somebody did on a canvas."""


def keep_canvases(app: dash.Dash, reads: Reads) -> None:
    """Each canvas by itself: its spans where they differ from those it shows, and what the address has chosen."""

    async def draw(here: Any, _: Any, search: str | None, shown: str | None) -> Any:
        if came_with_page(here, shown):
            return (no_update,) * 7
        name = str(dash.ctx.outputs_list[0]["id"]["canvas"])
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
    """The ranks that detectors accuse, once they have come to it: a picture does not wait for them."""

    async def mark(_: Any, __: Any, search: str | None, shown: Any) -> Any:
        name = str(dash.ctx.outputs_list["id"]["canvas"])
        marked = await run_in_threadpool(mark_canvas, name, parse_search(search).state, reads)
        return no_update if marked == shown else marked

    spans = {"canvas": MATCH, "part": "spans"}
    app.callback(Output(spans, "suspects"), HERE, ARRIVED, SEARCH, State(spans, "suspects"))(mark)


def follow_hands(app: dash.Dash) -> None:
    """What somebody chose, marked, pinned or zoomed to stands in the address before the server hears of it."""
    app.clientside_callback(
        ClientsideFunction("rankscope", "followHands"),
        *[Input({"canvas": ALL, "part": "spans"}, name) for name in HANDS],
        prevent_initial_call=True,
    )
