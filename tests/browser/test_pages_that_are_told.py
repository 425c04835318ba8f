"""`RANKSCOPE_LIVE=websocket`: pages show new data without polling."""

import socket
import time

import pytest
from fastapi import FastAPI
from playwright.sync_api import Page, Request, expect

from telemetry.collector.settings import ServerSettings
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from tests.browser.conftest import log_in
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
    """The requests that the clock of the page causes from now on."""
    asked: list[str] = []

    def note(request: Request) -> None:
        if BY_CLOCK in (request.post_data or ""):
            asked.append(request.url)

    page.on("request", note)
    return asked


def assert_new_steps_are_shown(page: Page, address: str, store: EmbeddedStore, live_run: SyntheticRun) -> None:
    """The open heat map shows three more steps after they arrived."""
    page.goto(f"{address}?view=heatmap&run=live")
    figure(page, "cells")
    before = figure_data(page, "cells", "plot._fullData[0].x.length")
    live_run.advance(store, 3)
    live_run.beat(store, at_ns=time.time_ns())
    wait_for_points(page, "cells", before + 3)


def test_page_with_websocket_shows_new_steps_and_store_outages_without_polling(
    page: Page, store: EmbeddedStore, live_run: SyntheticRun, site: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(POLL_EVERY_MS, "websocket", HOUR_MS)
    reader = Switchable(StoreReader(store))
    with serving_as_set(reader, ServerSettings.checked(live="websocket", token="hush"), site) as (address, _):
        log_in(page.context, address, "hush")
        asked = asked_by_clock(page)
        assert_new_steps_are_shown(page, address, store, live_run)
        reader.reachable = False
        expect(page.locator("#connection")).to_contain_text("The collector does not answer")
        reader.reachable = True
        expect(page.locator("#connection")).to_be_empty()
        assert asked == []
        page.close()


def test_page_polls_by_its_clock_when_its_websocket_fails(
    page: Page, store: EmbeddedStore, live_run: SyntheticRun, site: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(POLL_EVERY_MS, "websocket", 500)
    proxied = FastAPI()
    mount_dashboard(proxied, StoreReader(store), "websocket")
    with serving_app(proxied, site, sockets=False) as address:
        asked = asked_by_clock(page)
        assert_new_steps_are_shown(page, address, store, live_run)
        assert asked
        page.close()
