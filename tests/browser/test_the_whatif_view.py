"""The what-if view in a real browser: from the cost of a slow rank to the culprit."""

import pytest
from playwright.sync_api import Page, expect

from telemetry.stores.embedded import EmbeddedStore
from tests.browser.on_page import DEADLINE_MS, click_cell, control, figure_data, region, wait_until_drawn
from tests.ui.simulated_run import store_simulated

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def slow(store: EmbeddedStore, address: str) -> str:
    """Address of the what-if view of a run whose rank 5 is slow."""
    store_simulated(store, "slow", "slow:rank=5,factor=1.4")
    return f"{address}?view=whatif&run=slow"


def test_whatif_view_shows_the_cost_and_links_to_the_slow_worker(page: Page, slow: str) -> None:
    page.goto(slow)
    expect(region(page, "whatif-says")).to_contain_text("would take", timeout=DEADLINE_MS)
    wait_until_drawn(page)
    expect(region(page, "whatif-says")).to_contain_text("The slowest worker, dp1 pp0, causes most of the slowdown")
    assert figure_data(page, "fixing", "plot.calcdata[0].length") == 5

    control(page, "first").fill("10")
    control(page, "first").press("Enter")
    expect(region(page, "whatif-says")).to_contain_text("of steps 10 to 39")
    assert "steps=10-" in page.url
    wait_until_drawn(page)

    click_cell(page, "workers", row=0, column=1)
    page.wait_for_url("**view=timeline**")
    assert "rank=4" in page.url

    page.go_back()
    wait_until_drawn(page)
    region(page, "whatif-worst").get_by_role("link", name="heat map").first.click()
    page.wait_for_url("**view=heatmap**")
    assert "stage=backward-compute" in page.url
