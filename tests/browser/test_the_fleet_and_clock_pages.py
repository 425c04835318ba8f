"""The fleet page and the clock page in a real browser."""

import pytest
from playwright.sync_api import Page, expect

from telemetry.stores.embedded import EmbeddedStore
from tests.browser.on_page import control, figure, figure_data, region, wait_until_drawn
from tests.deadline import until
from tests.ui.made_fleet import SICK, SILENT, WELL, tell_of_clocks, tell_of_hosts
from tests.ui.synthetic_run import SyntheticRun

pytestmark = pytest.mark.browser
TITLES = "plot.layout.annotations.map(note => note.text).join('|')"


@pytest.fixture(scope="module")
def root(store: EmbeddedStore, address: str) -> str:
    """Address of a run with host samples and clock estimates, up to the view."""
    run = SyntheticRun(run_id="told")
    run.introduce(store)
    run.advance(store, 30)
    tell_of_hosts(store, run)
    tell_of_clocks(store, run, 30)
    return f"{address}?run=told&view="


def test_fleet_page_shows_the_host_with_most_problems_and_the_selected_samples(page: Page, root: str) -> None:
    page.goto(f"{root}fleet")
    wait_until_drawn(page)
    expect(region(page, "fleet-title")).to_contain_text(SICK)
    expect(region(page, "hosts").locator("tbody tr").first).to_contain_text(SICK)
    assert "eth0 lost its link for 4.0 s" in figure_data(page, "host", TITLES)
    region(page, "fleet-controls").get_by_text("GPU", exact=True).click()
    page.wait_for_url("**family=gpu**")
    until(lambda: "SM clock" in figure_data(page, "host", TITLES), what="the GPU's panels")
    region(page, "hosts").get_by_role("link", name=SILENT).click()
    expect(region(page, "fleet-title")).to_contain_text("has no GPU samples")
    page.go_back()
    expect(region(page, "fleet-title")).not_to_contain_text("has no GPU samples")
    assert f"host={SILENT}" not in page.url


@pytest.mark.long
def test_fleet_page_and_its_control_switch_to_the_slow_host_when_its_steps_arrive(
    page: Page, store: EmbeddedStore, address: str
) -> None:
    run = SyntheticRun(run_id="early")
    run.introduce(store)
    run.advance(store, 2)
    page.goto(f"{address}?run=early&view=fleet")
    wait_until_drawn(page)
    expect(control(page, "host")).to_have_value(WELL[0])
    run.advance(store, 30)
    expect(region(page, "fleet-title")).to_contain_text(SICK)
    expect(control(page, "host")).to_have_value(SICK)


@pytest.mark.long
def test_clock_page_reports_unaligned_windows_of_the_selected_host(page: Page, root: str) -> None:
    page.goto(f"{root}clock")
    wait_until_drawn(page)
    expect(region(page, "clock-says")).to_contain_text("1 of 4 hosts not aligned")
    region(page, "clocks").get_by_role("link", name="gpu-02").click()
    page.wait_for_url("**host=gpu-02**")
    expect(region(page, "clock-title")).to_contain_text("The clock could not be aligned in 1 of 3 windows")
    until(lambda: figure_data(page, "offset", "plot.layout.shapes.length") == 1, what="the shaded window")
    expect(control(page, "host")).to_have_value("gpu-02")
    figure(page, "offset")
