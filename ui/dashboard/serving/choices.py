"""The callbacks that change the address: after the use of a control, a chart or a canvas.

control, click, drag along the steps of a chart --> goes-to: the address after it --> address
canvas                                          --> address: by the browser alone (assets/address.js)
"""

import time
from contextlib import suppress
from typing import Any

import dash
from dash import ALL, ClientsideFunction, Input, Output, ctx, no_update
from starlette.concurrency import run_in_threadpool

from telemetry.errors import RankscopeError
from ui.dashboard.address import parse_search
from ui.dashboard.data import Reads
from ui.dashboard.pages import PAGES
from ui.dashboard.pages.controls import after_click, after_controls
from ui.dashboard.serving.callbacks import ADDRESS, ARRIVED
from ui.dashboard.view_state import ViewState

USER_PROPERTIES = ("clicked", "marked", "pins", "zoomed")
"""Properties of a canvas that change when a user acts on it."""


def keep_canvas_address(app: dash.Dash) -> None:
    """Choices on a canvas change the address in the browser, without the server."""
    app.clientside_callback(
        ClientsideFunction("rankscope", "followHands"),
        *[Input({"canvas": ALL, "part": "spans"}, name) for name in USER_PROPERTIES],
        prevent_initial_call=True,
    )


def keep_controls(app: dash.Dash, reads: Reads) -> None:
    """A control, a click or a drag changes the address. A new address or new data sets the controls.

    The browser changes the address itself (assets/address.js). If the address were an output, the parts of a new
    page would wait for the controls.
    """

    async def follow(search: str | None, *_: Any) -> Any:
        state = parse_search(search).state
        controls, graphs, brush = ctx.inputs_list[2:]
        used = [trigger for trigger in ctx.triggered_prop_ids.values() if trigger not in ("url", "freshness")]
        after = await run_in_threadpool(_after, state, controls, graphs, brush, used, reads) if used else state
        values = {} if used and after == state else await run_in_threadpool(_control_values, after, reads)
        goes_to = no_update if after == state else [search, after.search(), time.time_ns()]
        return goes_to, [_unless_shown(values, item) for item in controls]

    app.callback(
        Output("goes-to", "data"),
        Output({"control": ALL}, "value"),
        ADDRESS,
        ARRIVED,
        Input({"control": ALL}, "value"),
        Input({"chart": ALL, "part": "graph"}, "clickData"),
        Input("brushed", "data"),
        prevent_initial_call=True,
    )(follow)
    app.clientside_callback(
        ClientsideFunction("rankscope", "brushed"),
        Output("brushed", "data"),
        Input({"chart": ALL, "part": "graph"}, "relayoutData"),
        prevent_initial_call=True,
    )
    go_to = ClientsideFunction("rankscope", "goTo")
    app.clientside_callback(go_to, Input("goes-to", "data"), prevent_initial_call=True)


def _control_values(state: ViewState, reads: Reads) -> dict[str, object]:
    try:
        return dict(PAGES[state.view].control_values(state, reads))
    except RankscopeError:
        return {}


def _unless_shown(values: dict[str, object], item: dict[str, Any]) -> Any:
    """The new value of a control. A control that has it already is not set, because a user may be using it."""
    value = values.get(item["id"]["control"], no_update)
    return no_update if value == item.get("value") else value


def _after(
    state: ViewState,
    controls: list[dict[str, Any]],
    graphs: list[dict[str, Any]],
    brush: dict[str, Any],
    used: list[str | dict[str, str]],
    reads: Reads,
) -> ViewState:
    """The view after one control or chart was used. If several triggered, the page was drawn and no user did
    anything."""
    if len(used) != 1:
        return state
    if used[0] == "brushed":
        return _after_drag(state, brush.get("value"), reads)
    for item in graphs:
        if item["id"] == used[0] and item.get("value"):
            return _after_click(state, item["id"]["chart"], item["value"]["points"][0], reads)
    expected = _control_values(state, reads)
    values = {item["id"]["control"]: item.get("value") for item in controls if item["id"] == used[0]}
    return after_controls(state, {name: value for name, value in values.items() if value != expected.get(name)})


def _after_click(state: ViewState, name: str, point: dict[str, Any], reads: Reads) -> ViewState:
    chart = PAGES[state.view].charts.get(name)
    if chart is None or chart.after_click is None:
        return after_click(state, name, point)
    with suppress(RankscopeError):
        return chart.after_click(state, reads, point)
    return state


def _after_drag(state: ViewState, drag: Any, reads: Reads) -> ViewState:
    """``drag``: a chart, and the ends of the drag on its x axis."""
    match drag:
        case {"chart": str(name), "first": first, "last": last}:
            chart = PAGES[state.view].charts.get(name)
            with suppress(RankscopeError):
                return chart.after_drag(state, reads, first, last) if chart and chart.after_drag else state
    return state
