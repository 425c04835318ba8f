"""`RANKSCOPE_LIVE=websocket`: pages show what has arrived without having asked."""

import time

import pytest
from fastapi import FastAPI
from playwright.sync_api import Page, Request, expect

from telemetry.collector.settings import ServerSettings
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from tests.browser.on_page import figure, figure_data, wait_for_points
from tests.ui.served_dashboard import serving_app, serving_as_set
from tests.ui.switchable import Switchable
from tests.ui.synthetic_run import SyntheticRun
from ui.dashboard.app import mount_dashboard
from ui.dashboard.pages.frame import POLL_EVERY_MS

pytestmark = pytest.mark.browser

BY_CLOCK = '"changedPropIds":["clock.n_intervals"]'
HOUR_MS = 3_600_000


def asked_by_clock(page: Page) -> list[str]:
    """What the page asks from now on because its own clock says so."""
    asked: list[str] = []

    def note(request: Request) -> None:
        if BY_CLOCK in (request.post_data or ""):
            asked.append(request.url)

    page.on("request", note)
    return asked


def shows_what_arrives(page: Page, address: str, store: EmbeddedStore, live_run: SyntheticRun) -> None:
    """Three more steps come while the heat map is open: it shows them."""
    page.goto(f"{address}?view=heatmap&run=live")
    figure(page, "cells")
    before = figure_data(page, "cells", "plot._fullData[0].x.length")
    live_run.advance(store, 3)
    live_run.beat(store, at_ns=time.time_ns())
    wait_for_points(page, "cells", before + 3)


def test_a_page_is_told_of_steps_and_of_a_store_that_goes_and_comes_back(
    page: Page, store: EmbeddedStore, live_run: SyntheticRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(POLL_EVERY_MS, "websocket", HOUR_MS)
    reader = Switchable(StoreReader(store))
    with serving_as_set(reader, ServerSettings.checked(live="websocket", token="hush")) as (address, _):
        with page.context.new_page() as asking:  # where somebody types the password, which the browser then knows
            asking.goto(address.replace("//", "//anyone:hush@") + "_dash-layout")
        asked = asked_by_clock(page)
        shows_what_arrives(page, address, store, live_run)
        reader.reachable = False
        expect(page.locator("#connection")).to_contain_text("The collector does not answer")
        reader.reachable = True
        expect(page.locator("#connection")).to_be_empty()
        assert asked == []
        page.close()


def test_a_page_whose_socket_is_cut_asks_by_its_clock(
    page: Page, store: EmbeddedStore, live_run: SyntheticRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(POLL_EVERY_MS, "websocket", 500)
    proxied = FastAPI()
    mount_dashboard(proxied, StoreReader(store), "websocket")
    with serving_app(proxied, sockets=False) as address:
        asked = asked_by_clock(page)
        shows_what_arrives(page, address, store, live_run)
        assert asked
        page.close()
