"""The findings log in a browser: filter, open, send actions with the write token, and show them."""

import re
import socket
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from diagnose.findings import Severity
from telemetry.collector.server import create_app
from telemetry.collector.settings import CollectorSettings
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from telemetry.stores.queries import FindingActions
from tests.browser.conftest import log_in
from tests.browser.on_page import region
from tests.telemetry.served import serving
from tests.ui.reported_alerts import S, made_alert, tell, tell_log, tell_look
from tests.ui.synthetic_run import SyntheticRun
from ui.dashboard.app import mount_dashboard

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def collector(store: EmbeddedStore, site: socket.socket) -> Iterator[str]:
    """A collector with its dashboard, and a live run with two findings."""
    now_ns = time.time_ns()
    run = SyntheticRun(run_id="live", started_ns=now_ns - 60 * S)
    run.introduce(store)
    run.advance(store, 20)
    run.beat(store, at_ns=now_ns + 600 * S)
    slow = made_alert("live", began_ns=now_ns - 50 * S, summary="slow <b>rank</b>")
    grave = made_alert("live", began_ns=now_ns - 40 * S, rank=7, severity=Severity.CRITICAL, summary="grave")
    for alert in (slow, grave):
        tell(store, alert, at_ns=now_ns)
    tell_look(store, "live", at_ns=now_ns)
    tell_log(store, [slow, grave], at_ns=now_ns)
    app = create_app(store, CollectorSettings.checked(token="all", write_token="in", read_token="out", linger_s=0.0))
    mount_dashboard(app, StoreReader(store), takes_actions=True)
    with serving(app, site) as url:
        yield url


def test_finding_is_filtered_acknowledged_with_the_write_token_and_silenced_from_its_alert(
    context: BrowserContext, collector: str, store: EmbeddedStore
) -> None:
    log_in(context, collector, "out")
    with context.new_page() as page:
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{collector}/?view=findings-log")
        log = region(page, "log")
        expect(log.locator(".log-finding")).to_have_count(2)
        page.get_by_label("Host").fill("gpu-03")
        expect(page).to_have_url(re.compile("host=gpu-03"))
        expect(log.locator(".log-finding")).to_have_count(1)
        log.get_by_text("slow <b>rank</b>").first.click()
        log.get_by_role("button", name="Acknowledge").click()
        answer(page, name="Ada", text="<i>on it</i>")
        expect(page.get_by_role("alert")).to_contain_text("this token may only read")
        page.get_by_label("Write token of the collector").fill("in")
        page.get_by_role("button", name="Send").click()
        expect(log.locator(".actions")).to_contain_text("Ada acknowledged it: <i>on it</i>")
        expect(log.locator(".log-finding")).to_contain_text("acknowledged")
        page.get_by_role("link", name="Alerts", exact=True).click()
        firing = region(page, "firing")
        expect(firing.get_by_role("article").first).to_contain_text("grave")
        firing.get_by_role("button", name="Silence").first.click()
        expect(page.get_by_label("Your name")).to_have_value("Ada")
        page.get_by_role("combobox", name="For").select_option("until a time …")
        page.get_by_role("textbox", name="Until").fill("2020-01-01T00:00")
        page.get_by_role("button", name="Send").click()
        expect(page.get_by_role("alert")).to_contain_text("the end of a silence must be in the future")
        page.get_by_role("combobox", name="For").select_option("4 hours")
        page.get_by_role("button", name="Send").click()
        expect(firing.get_by_role("article").first).to_contain_text("silenced until")
        page.reload()
        expect(firing.get_by_role("article").first).to_contain_text("Ada silenced it until")
        assert not any("token" in url or "Bearer" in url for url in asked)
        page.evaluate("localStorage.clear()")
    actions = StoreReader(store).read(FindingActions()).to_pylist()
    assert [(row["action"], row["who"]) for row in actions] == [("silence", "Ada"), ("acknowledge", "Ada")]
    lasts_h = (actions[0]["until_ns"] - actions[0]["at_ns"]) / 3600 / S
    assert lasts_h == pytest.approx(4, abs=0.2)


def answer(page: Page, *, name: str, text: str) -> None:
    page.get_by_label("Your name").fill(name)
    page.get_by_label("Note (optional)").fill(text)
    page.get_by_role("button", name="Send").click()
