"""The parts that come with the first answer of a page, and the parts that the page requests later."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from ui.dashboard.data import Reads
from ui.dashboard.pages import PAGES
from ui.dashboard.pages.interface import Chart, canvas_id, canvas_panel_id, chart_id, panel_id, region_id
from ui.dashboard.serving.drawing import draw_canvas, draw_chart, draw_page, draw_region
from ui.dashboard.serving.first_answer import FirstAnswer, first_answer
from ui.dashboard.view_state import View, ViewState

PATIENT_S = 60.0


def answer(
    state: ViewState, reads: Reads, within_s: float = PATIENT_S, then: Callable[[], None] = lambda: None
) -> FirstAnswer:
    """``then``: called after the answer is ready, and before the parts that are still being drawn are awaited."""

    async def ask() -> FirstAnswer:
        found = await first_answer(draw_page(state, reads).make(), state, reads, within_s)
        then()
        return found

    with ThreadPoolExecutor(1) as beside:  # the browser of other tests may keep an event loop in this thread
        return beside.submit(lambda: asyncio.run(ask())).result()


def props(node: Any, identity: dict[str, str]) -> dict[str, Any]:
    """The properties of the one component with this id."""
    (found,) = (one for one in every(node) if one.get("id") == identity)
    return found


def every(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, list):
        for one in node:
            yield from every(one)
    elif isinstance(node, dict) and "props" in node:
        yield node["props"]
        yield from every(node["props"].get("children"))


@pytest.mark.parametrize("view", [view for view in View if PAGES[view].needs_run])
def test_first_answer_contains_all_parts_that_are_ready(view: View, reads: Reads) -> None:
    state = ViewState(view=view, run="made")
    reads.reports.of(reads.newest(state))
    page, is_whole = answer(state, reads)
    assert is_whole
    for name in PAGES[view].regions:
        drawn = draw_region(name, state, reads, by_clock=False)
        assert drawn is not None
        assert props(page, region_id(name))["data-drawn"] == drawn.key
    for name in PAGES[view].charts:
        if name.startswith("own-"):
            continue  # the run has no such metrics
        plotted = draw_chart(name, state, reads, None)
        assert plotted is not None
        assert props(page, chart_id(name))["figure"] == plotted.figure
        panel = props(page, panel_id(name))
        assert (panel["className"], panel["data-kind"]) == (plotted.panel, plotted.kind)
    for name in PAGES[view].canvases:
        painted = draw_canvas(name, state, reads, None)
        assert painted is not None
        assert props(page, canvas_id(name))["data"] == painted.data
        assert props(page, canvas_panel_id(name))["data-kind"] == painted.kind


def test_first_answer_leaves_out_a_slow_part(reads: Reads, monkeypatch: pytest.MonkeyPatch) -> None:
    go, page = threading.Event(), PAGES[View.HEAT_MAP]
    slow = Chart(draw=lambda state, reads: go.wait(PATIENT_S) and None)
    monkeypatch.setitem(PAGES, View.HEAT_MAP, replace(page, charts={**page.charts, "cells": slow}))
    state = ViewState(view=View.HEAT_MAP, run="made")
    for name in page.regions:
        draw_region(name, state, reads, by_clock=False)
    draw_chart("hosts", state, reads, None)
    found, is_whole = answer(state, reads, within_s=2.0, then=go.set)
    assert not is_whole
    assert props(found, panel_id("cells"))["className"] == "panel waiting"
    assert "data-kind" not in props(found, panel_id("cells"))
    assert props(found, panel_id("hosts"))["className"] == "panel"


def test_failure_of_one_part_does_not_affect_other_parts_of_the_first_answer(
    reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(name: str, *_: object) -> None:
        raise RuntimeError(name)

    monkeypatch.setattr("ui.dashboard.serving.first_answer.draw_chart", broken)
    page, is_whole = answer(ViewState(view=View.HEAT_MAP, run="made"), reads)
    assert not is_whole
    assert props(page, region_id("heat-controls"))["data-drawn"]
    assert "data-kind" not in props(page, panel_id("cells"))


def test_first_answer_for_an_unknown_run_is_whole_and_names_the_run(reads: Reads) -> None:
    page, is_whole = answer(ViewState(view=View.HEAT_MAP, run="nobody-has-it"), reads)
    assert is_whole
    assert "nobody-has-it" in json.dumps(page)
