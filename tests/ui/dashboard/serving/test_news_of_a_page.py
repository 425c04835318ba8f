"""Answers of the server to the clock of a page, requested as a browser does it."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from tests.ui.asked import Property, ask
from tests.ui.served_dashboard import serving
from tests.ui.synthetic_run import SyntheticRun
from ui.dashboard.data import Reads
from ui.dashboard.serving.callbacks import LOST_AFTER_S
from ui.dashboard.serving.drawing import Drawn
from ui.dashboard.view_state import ViewState

Known = list[str] | dict[str, object] | None

SEARCH = "?view=heatmap&run=made"


@pytest.fixture(scope="module")
def address(store: EmbeddedStore, run: SyntheticRun) -> Iterator[str]:
    with serving(StoreReader(store)) as address:
        yield address


def clock_answer(address: str, shown: str | None, known: Known) -> dict[str, Any]:
    """The answer to the clock of a page whose address has just become :data:`SEARCH`."""
    outputs: list[Property] = [("freshness", "data"), ("known", "data"), ("connection", "children")]
    state = [("url", "search", SEARCH), ("page", "data-drawn", shown), ("known", "data", known)]
    return ask(address, outputs, [("clock", "n_intervals", 1)], state, ["clock.n_intervals"])


def test_open_page_receives_the_stored_freshness_only_once(address: str) -> None:
    first = clock_answer(address, "heatmap/made/None/page", None)
    again = clock_answer(address, "heatmap/made/None/page", first["known"]["data"])
    assert first["freshness"] == first["known"]
    assert "freshness" not in again


def test_page_that_is_loading_is_requested_again_only_after_it_is_lost(address: str) -> None:
    shown = "overview/made/None/page"
    missed = clock_answer(address, shown, ["known", "before"])
    soon = clock_answer(address, shown, awaited(since_s=time.time()))
    lost = clock_answer(address, shown, awaited(since_s=time.time() - LOST_AFTER_S))
    assert "freshness" not in missed
    assert missed["known"]["data"]["awaited"] == SEARCH
    assert soon == {}
    assert lost["freshness"] == lost["known"] != missed["known"]


def awaited(since_s: float) -> dict[str, object]:
    """What a page knows while the page of its address is missing."""
    return {"awaited": SEARCH, "since_s": since_s}


def test_page_that_is_slow_to_draw_is_not_requested_again(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, began = threading.Event(), threading.Event()

    def draw_page(state: ViewState, reads: Reads) -> Drawn:
        began.set()
        go_on.wait(60)
        return Drawn("slow", lambda: None)

    monkeypatch.setattr("ui.dashboard.serving.callbacks.draw_page", draw_page)
    long_ago = awaited(since_s=time.time() - LOST_AFTER_S)
    with ThreadPoolExecutor(1) as beside:
        drawn = beside.submit(ask_for_page, address)
        try:
            assert began.wait(60)
            assert clock_answer(address, "overview/made/None/page", long_ago) == {}
        finally:
            go_on.set()
        drawn.result()
        assert clock_answer(address, "overview/made/None/page", long_ago)["freshness"]


def ask_for_page(address: str) -> dict[str, Any]:
    dependencies = httpx.get(f"{address}_dash-dependencies", verify=False).raise_for_status().json()
    (named,) = (one["output"] for one in dependencies if one["output"].startswith("..page.children"))
    outputs: list[Property] = [tuple(one.split(".", 1)) for one in named.strip(".").split("...")]
    inputs = [("url", "search", SEARCH), ("freshness", "data", None)]
    return ask(address, outputs, inputs, [("page", "data-drawn", None)], ["url.search"])
