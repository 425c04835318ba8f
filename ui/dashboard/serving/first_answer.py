"""The first answer of a page: its skeleton, with the parts that are ready in time. Its data is preloaded.

address --> skeleton --> regions, charts, canvases, each drawn in a thread --> in time: part of the first answer
                                                                          --> late: the page requests them afterwards

browser   |-- address --|-------- scripts --------|-- page ----|
server                  |-- facts, sums, cells --|    preloading: answers are cached while the browser loads scripts

For a page with figures, a header makes the browser load plotly at the same time.
"""

import asyncio
import json
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import dash
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from telemetry.errors import RankscopeError
from ui.dashboard.address import parse_search
from ui.dashboard.data import Reads
from ui.dashboard.data.cache import StillWorking
from ui.dashboard.pages import PAGES
from ui.dashboard.pages.interface import canvas_id, canvas_panel_id, chart_id, panel_id, region_id
from ui.dashboard.serving.drawing import draw_canvas, draw_chart, draw_region
from ui.dashboard.view_state import ViewState

log = logging.getLogger(__name__)

WITHIN_S = 0.5
"""The longest time that a page waits for its parts."""
KINDS = ("region", "chart", "canvas")
"""Kinds of parts. An id has the name of the part under its kind."""

Placed = dict[str, dict[str, Any]]
"""Properties by id (:func:`_place`)."""


class FirstAnswer(NamedTuple):
    """``page``: JSON of Dash. ``is_whole``: whether no part is missing."""

    page: Any
    is_whole: bool


async def first_answer(page: Any, state: ViewState, reads: Reads, within_s: float = WITHIN_S) -> FirstAnswer:
    """The page with the parts that are ready within ``within_s``. ``page``: its skeleton as JSON of Dash."""
    ids = [props["id"] for props in _with_ids(page)]
    parts = dict.fromkeys((kind, identity[kind]) for identity in ids for kind in KINDS if kind in identity)
    drawing = [asyncio.ensure_future(run_in_threadpool(_drawn, *part, state, reads)) for part in parts]
    if not drawing:
        return FirstAnswer(page, is_whole=True)
    ready, late = await asyncio.wait(drawing, timeout=within_s)
    for task in late:
        task.cancel()
    for error in (task.exception() for task in ready):
        if error is not None:
            log.error(
                "a part of the page could not be included in the first response: %s", state.search(), exc_info=error
            )
    drawn = [task.result() for task in ready if task.exception() is None]
    placed = {place: values for part in drawn for place, values in part.items()}
    for props in _with_ids(page):
        props.update(placed.get(_place(props["id"]), {}))
    return FirstAnswer(page, is_whole=len(drawn) == len(drawing))


def _drawn(kind: str, name: str, state: ViewState, reads: Reads) -> Placed:
    if kind == "region":
        drawn = draw_region(name, state, reads, by_clock=False)
        return {_place(region_id(name)): {"children": drawn.make(), "data-drawn": drawn.key}} if drawn else {}
    if kind == "chart":
        plotted = draw_chart(name, state, reads, None)
        return _split(plotted._asdict(), chart_id(name), panel_id(name)) if plotted else {}
    painted = draw_canvas(name, state, reads, None)
    return _split(painted._asdict(), canvas_id(name), canvas_panel_id(name)) if painted else {}


def _split(drawn: dict[str, Any], of_drawing: dict[str, str], of_panel: dict[str, str]) -> Placed:
    """Properties of a drawing and of the panel around it."""
    panel = {"className": drawn.pop("panel"), "data-kind": drawn.pop("kind")}
    sets = {_place(of_drawing): drawn, _place(of_panel): panel}
    return {
        place: {name: value for name, value in props.items() if not isinstance(value, dash.NoUpdate)}
        for place, props in sets.items()
    }


def _with_ids(node: Any) -> Iterator[dict[str, Any]]:
    """Properties of all components that callbacks use."""
    if isinstance(node, list):
        for child in node:
            yield from _with_ids(child)
    elif isinstance(node, dict) and "props" in node:
        if isinstance(node["props"].get("id"), dict):
            yield node["props"]
        yield from _with_ids(node["props"].get("children"))


def _place(identity: dict[str, str]) -> str:
    return json.dumps(identity, sort_keys=True)


PLOTLY = "</_dash-component-suites/plotly/package_data/plotly.min.js>; rel=preload; as=script"
"""The script of plotly, as a header names it."""
AT_ONCE = 4
"""Addresses that are preloaded at the same time. Other pages are not preloaded, so that none waits for many others."""


class Preload:
    """Sends the queries of pages in the background. Delays nothing and changes no answer."""

    def __init__(self, reads: Reads) -> None:
        self._reads = reads
        self._workers = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="ahead")
        self._room = threading.Semaphore(AT_ONCE)

    def begin(self, state: ViewState) -> None:
        """Preload the page of ``state`` if fewer than AT_ONCE are being loaded."""
        if self._room.acquire(blocking=False):
            self._workers.submit(self._ask, state)

    def _ask(self, state: ViewState) -> None:
        try:
            ask(state, self._reads)
        finally:
            self._room.release()


class PreloadRequests:
    """Middleware that starts preloading when a page is requested by its address."""

    def __init__(self, app: ASGIApp, ahead: Preload) -> None:
        self._app = app
        self._ahead = ahead

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != "/" or scope["method"] != "GET":
            return await self._app(scope, receive, send)
        state = parse_search(scope["query_string"].decode("latin-1")).state
        self._ahead.begin(state)

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["Link"] = PLOTLY
            await send(message)

        return await self._app(scope, receive, sent if PAGES[state.view].charts else send)


def ask(state: ViewState, reads: Reads) -> None:
    """Send the queries of the page of ``state``. Errors are shown later by the page."""
    page = PAGES[state.view]
    try:
        if not page.needs_step or len(reads.facts(state).steps.step):
            page.preload(state, reads)
    except (RankscopeError, StillWorking):
        pass
    except Exception:
        log.exception("data of %s could not be loaded in advance", state.search())
