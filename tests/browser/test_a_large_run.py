"""Every page and every control at 12,288 ranks: 20 million spans, 1,000 steps, and a job that hangs.

If RANKSCOPE_LARGE_STORE names a folder, the runs are kept there and used again (tests/benchmarks/large_runs.py).
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from tests.benchmarks.dashboard import DRAWN, MAX_MB
from tests.benchmarks.large_runs import LARGE, LONG, SLOW_FROM, SLOW_RANK, STUCK, build
from tests.browser.conftest import watched_page
from tests.browser.large_walks import EVERY_STEP, VIEWS, WALKS
from tests.browser.on_page import figure_data, region
from tests.browser.page_walks import Opened, told, use
from tests.deadline import until
from tests.ui.served_dashboard import serving

pytestmark = [pytest.mark.browser, pytest.mark.long, pytest.mark.timeout(1200)]

LIMIT_MS = 240_000
"""Detectors and replays of 20 million spans run at the same time."""
SLOW_STEPS = """(() => {
    const rows = Array.from(plot.calcdata[0][0].z, (row) => Array.from(row)), steps = Array.from(plot._fullData[0].x);
    const slowest = rows.reduce((a, b) => Math.max(...a) > Math.max(...b) ? a : b);
    return [steps, steps.filter((_, at) => slowest[at] > 1.2)];
})()"""
"""First steps of all columns, and of those in which the row of the slowest rank is slow."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a dashboard with the large runs, up to the view."""
    kept = os.environ.get("RANKSCOPE_LARGE_STORE")
    folder = Path(kept) if kept else tmp_path_factory.mktemp("large") / "store"
    build(folder)
    store = EmbeddedStore(folder)
    try:
        store.migrate()
        with serving(StoreReader(store)) as address:
            yield f"{address}?"
    finally:
        store.close()


@pytest.fixture
def page(page: Page) -> Page:
    page.set_default_timeout(LIMIT_MS)
    return page


@pytest.fixture
def other(context: BrowserContext) -> Iterator[Opened]:
    """The page of another user, in dark mode."""
    with watched_page(context) as page:
        page.set_default_timeout(LIMIT_MS)
        page.emulate_media(color_scheme="dark")
        yield Opened(page)


@pytest.mark.parametrize("search", VIEWS.values(), ids=VIEWS)
def test_page_is_drawn_in_light_and_dark_mode_within_the_limit_of_transferred_data(
    page: Page, address: str, search: str
) -> None:
    opened = Opened(page)
    opened.open(address + search)
    assert opened.megabytes() <= MAX_MB
    light, before = background(page), told(page)
    page.get_by_role("button", name="switch between light and dark").click()
    page.wait_for_function("document.documentElement.dataset.mantineColorScheme === 'dark'")
    page.wait_for_function(DRAWN)
    assert background(page) < 80 < 200 < light
    assert told(page)["figures"] == before["figures"]


@pytest.mark.parametrize("search", WALKS)
def test_address_restores_the_page_after_each_control_is_used(
    page: Page, other: Opened, address: str, search: str
) -> None:
    Opened(page).open(address + search)
    for one in WALKS[search]:
        use(page, one)
        other.open(page.url)
        until(
            lambda: told(page) == told(other.page),
            seconds=LIMIT_MS / 1e3,
            every=0.5,
            what=f"the same page as after {one.name}",
        )
        assert other.megabytes() <= MAX_MB, f"after {one.name}"


def test_overview_names_the_host_with_the_link_flap_and_the_throttled_rank(page: Page, address: str) -> None:
    page.goto(f"{address}run={LARGE}")
    for culprit in ("gpu-0100", "4242"):
        expect(region(page, "findings")).to_contain_text(culprit, timeout=LIMIT_MS)


def test_heat_map_shows_the_slow_rank_and_its_first_slow_step(page: Page, address: str) -> None:
    page.goto(f"{address}view=heatmap&run={LONG}&{EVERY_STEP}")
    page.wait_for_function(DRAWN)
    expect(region(page, "heat-says")).to_contain_text(f"the slowest is rank {SLOW_RANK}")
    steps, slow = figure_data(page, "cells", SLOW_STEPS)
    assert slow == steps[-len(slow) :]
    assert abs(slow[0] - SLOW_FROM) < steps[1] - steps[0]


def test_the_hang_view_names_the_stuck_rank(page: Page, address: str) -> None:
    page.goto(f"{address}view=hang&run={STUCK}")
    expect(region(page, "hang-verdict")).to_contain_text(f"rank {SLOW_RANK} is behind", timeout=LIMIT_MS)
    expect(region(page, "rank")).to_contain_text("next_batch (loader.py:88)")


def background(page: Page) -> int:
    """How bright the page is, 0 to 255."""
    colour: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return int(colour.partition("(")[2].partition(",")[0])
