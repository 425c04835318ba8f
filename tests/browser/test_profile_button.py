"""The button that requests a profile: the browser sends the request, and the collector checks the token."""

import socket
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import BrowserContext, expect

from diagnose.profiles import stored_profiles
from telemetry.collector.server import create_app
from telemetry.collector.settings import CollectorSettings
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from tests.browser.conftest import log_in
from tests.browser.on_page import DEADLINE_MS, region
from tests.telemetry.served import serving
from tests.ui.made_profiles import store_profiles
from tests.ui.synthetic_run import SyntheticRun
from ui.dashboard.app import mount_dashboard

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def collector(store: EmbeddedStore, site: socket.socket) -> Iterator[str]:
    """A collector with its dashboard, and a live run in which rank 5 is slow."""
    now_ns = time.time_ns()
    run = SyntheticRun(run_id="live", started_ns=now_ns - 60 * 10**9)
    run.introduce(store)
    run.advance(store, 40)
    run.beat(store, at_ns=now_ns + 600 * 10**9)  # it stays live, however long the pages take
    store_profiles(store, "live", at_ns=now_ns - 30 * 10**9)
    settings = CollectorSettings.checked(token="all", read_token="out", linger_s=0.0)
    app = create_app(store, settings)
    mount_dashboard(app, StoreReader(store), takes_orders=True)
    with serving(app, site) as url:
        yield url


@pytest.mark.parametrize(("token", "said"), [("all", "Requested."), ("out", "this token may only read")])
def test_button_requests_a_profile_with_the_full_token_only(
    context: BrowserContext, collector: str, store: EmbeddedStore, token: str, said: str
) -> None:
    before = len(stored_profiles(StoreReader(store), "live", 0))
    log_in(context, collector, token)
    with context.new_page() as page:
        page.goto(f"{collector}/?view=overview&run=live")
        findings = region(page, "findings")
        button = findings.get_by_role("button", name="Profile ranks 1, 5")
        button.click(timeout=DEADLINE_MS)
        expect(findings.locator(".order-answer").first).to_contain_text(said)
    ordered = stored_profiles(StoreReader(store), "live", 0)
    assert len(ordered) - before == (2 if token == "all" else 0)
