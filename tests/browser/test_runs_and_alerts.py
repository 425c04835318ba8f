"""The list of runs and the page of alerts: search, sort and updates, by mouse and by keyboard."""

import re
import time

import pytest
from playwright.sync_api import Page, expect

from diagnose.alerts.alert import Phase
from telemetry.stores.embedded import EmbeddedStore
from tests.browser.on_page import control, region, wait_until_drawn
from tests.ui.reported_alerts import S, made_alert, tell, tell_look
from tests.ui.synthetic_run import SyntheticRun

pytestmark = pytest.mark.browser


def test_run_is_found_by_name_and_opened_by_keyboard(page: Page, address: str) -> None:
    page.goto(f"{address}?view=runs")
    expect(page.locator(".run-link")).to_have_count(2)
    expect(control(page, "find")).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("SLOW-r")
    expect(page).to_have_url(re.compile("find=SLOW-r"))
    expect(page.locator(".run-link")).to_have_text(["slow-rank-5"])
    page.keyboard.press("ArrowDown")
    expect(page.locator(".run-link")).to_be_focused()
    page.keyboard.press("Enter")
    expect(region(page, "verdict")).to_contain_text("rank 5")
    page.go_back()
    expect(page.locator(".run-link")).to_have_text(["slow-rank-5"])
    page.reload()
    expect(control(page, "find")).to_have_value("SLOW-r")


@pytest.mark.long
def test_column_head_sorts_the_run_list_and_a_live_run_is_updated(
    page: Page, address: str, store: EmbeddedStore, live_run: SyntheticRun
) -> None:
    page.goto(f"{address}?view=runs")
    live_run.beat(store, at_ns=time.time_ns())
    row = page.locator("tr").filter(has=page.get_by_role("link", name="live", exact=True))
    expect(row.locator("td").nth(5)).to_have_text("11")
    page.get_by_role("link", name="Step time").click()
    expect(page.locator("th[aria-sort]")).to_contain_text("Step time")
    expect(page.locator(".run-link")).to_have_text(["slow-rank-5", "live"])
    live_run.advance(store, 10)
    live_run.beat(store, at_ns=time.time_ns())
    expect(row.locator("td").nth(5)).to_have_text("21")
    expect(row).to_contain_text("now")


@pytest.mark.long
def test_alert_links_to_its_view_shows_its_silence_command_and_moves_to_history(
    page: Page, address: str, store: EmbeddedStore, live_run: SyntheticRun
) -> None:
    page.goto(f"{address}?view=alerts")
    expect(region(page, "watcher")).to_contain_text("rankscope collect --alerts")
    began_ns = time.time_ns() - 30 * S
    tell(store, made_alert("live", began_ns=began_ns), at_ns=time.time_ns())
    tell_look(store, "live", at_ns=time.time_ns())
    expect(region(page, "firing")).to_contain_text("rank 5 computes 1.4 times as long")
    command = page.locator(".command")
    expect(command).to_be_hidden()
    page.get_by_text("Silence elsewhere").click()
    expect(command).to_contain_text("""'run_id="live"'""")
    page.get_by_role("link", name="Show view").click()
    expect(region(page, "verdict")).not_to_be_empty()
    page.get_by_role("link", name="Alerts", exact=True).click()
    expect(page).to_have_url(re.compile("view=alerts&run=live"))
    tell(store, made_alert("live", began_ns=began_ns, phase=Phase.RESOLVED), at_ns=time.time_ns())
    expect(region(page, "past")).to_contain_text("compute-straggler")
    expect(region(page, "firing")).to_contain_text("No alert is firing")
    page.get_by_role("link", name="Runs", exact=True).click()
    wait_until_drawn(page)
    live = page.locator("tr", has=page.locator(".run-link", has_text="live"))
    expect(live).to_contain_text("none")
