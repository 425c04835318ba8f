"""The first answer of a page: its skeleton, with those parts that are drawn in time.

address --> skeleton --> regions, charts, canvases, each drawn in a thread --> in time: part of the first answer
                                                                          --> late: the page requests them afterwards
"""

import asyncio
import json
import logging
from collections.abc import Iterator
from typing import Any, NamedTuple

import dash
from starlette.concurrency import run_in_threadpool

from ui.dashboard.data import Reads
from ui.dashboard.drawing import draw_canvas, draw_chart, draw_region
from ui.dashboard.pages.interface import canvas_id, canvas_panel_id, chart_id, panel_id, region_id
from ui.dashboard.view_state import ViewState

log = logging.getLogger(__name__)

WITHIN_S = 0.5
"""No page waits longer for its parts than this."""
KINDS = ("region", "chart", "canvas")
"""Of parts: the name of each stands under its kind in ids."""

Placed = dict[str, dict[str, Any]]
"""Properties by id, as :func:`_place` writes it."""


class FirstAnswer(NamedTuple):
    """``page``: as Dash writes it. ``is_whole``: nothing is left to be asked for."""

    page: Any
    is_whole: bool


async def first_answer(page: Any, state: ViewState, reads: Reads, within_s: float = WITHIN_S) -> FirstAnswer:
    """The page to put up. ``page``: its skeleton, as Dash writes it."""
    parts = dict.fromkeys((kind, one["id"][kind]) for one in _with_ids(page) for kind in KINDS if kind in one["id"])
    drawing = [asyncio.ensure_future(run_in_threadpool(_drawn, *part, state, reads)) for part in parts]
    if not drawing:
        return FirstAnswer(page, is_whole=True)
    ready, late = await asyncio.wait(drawing, timeout=within_s)
    for task in late:
        task.cancel()
    for error in (task.exception() for task in ready):
        if error is not None:
            log.error("a part of the page could not be drawn with it: %s", state.search(), exc_info=error)
    drawn = [task.result() for task in ready if task.exception() is None]
    placed = {place: values for one in drawn for place, values in one.items()}
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
    """What is drawn, and what the panel around it says of it."""
    panel = {"className": drawn.pop("panel"), "data-kind": drawn.pop("kind")}
    sets = {_place(of_drawing): drawn, _place(of_panel): panel}
    return {
        place: {name: value for name, value in props.items() if not isinstance(value, dash.NoUpdate)}
        for place, props in sets.items()
    }


def _with_ids(node: Any) -> Iterator[dict[str, Any]]:
    """Properties of every component that callbacks find."""
    if isinstance(node, list):
        for one in node:
            yield from _with_ids(one)
    elif isinstance(node, dict) and "props" in node:
        if isinstance(node["props"].get("id"), dict):
            yield node["props"]
        yield from _with_ids(node["props"].get("children"))


def _place(identity: dict[str, str]) -> str:
    return json.dumps(identity, sort_keys=True)
