"""From a step to what of it is lost, and to its trace, in a real browser."""

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from telemetry.stores.embedded import EmbeddedStore
from tests.browser.on_page import DEADLINE_MS, control, region, timeline, told_by_timeline, wait_until_drawn
from tests.diagnose.trace.opened import opened_json
from tests.ui.simulated_run import store_simulated

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def slow(store: EmbeddedStore, address: str) -> str:
    """Address of the timeline of a run whose rank 5 is slow."""
    store_simulated(store, "slow", "slow:rank=5,factor=1.4")
    return f"{address}?view=timeline&run=slow&group=pp&rank=5&step=25"


@pytest.mark.long
def test_a_step_shows_what_it_loses_and_gives_its_trace_away(
    page: Page, slow: str, address: str, tmp_path: Path
) -> None:
    page.goto(slow)
    wait_until_drawn(page)
    control(page, "ideal").get_by_text("Shown").click()
    page.wait_for_url("**ideal=shown**")
    expect(region(page, "ideal")).to_contain_text(") is lost.", timeout=DEADLINE_MS)
    page.wait_for_function("document.querySelector('.span-timeline').timeline.ideal()", timeout=DEADLINE_MS)
    ideal = told_by_timeline(page, "timeline.ideal()")
    assert ideal["lost"] > 0
    assert len(ideal["rows"]) == 2

    wait_until_drawn(page)
    timeline(page).locator("canvas").scroll_into_view_if_needed()
    key = told_by_timeline(page, "timeline.spans({stage: 'backward-compute', rank: 5})[1]")
    real, bar = (told_by_timeline(page, f"timeline.{name}(argument)", key) for name in ("where", "whereIdeal"))
    assert bar["y"] > real["y"] + real["height"]
    assert bar["width"] < real["width"]
    page.mouse.move(bar["x"] + bar["width"] / 2 - 2, bar["y"] + 3)
    page.mouse.move(bar["x"] + bar["width"] / 2, bar["y"] + 3)
    expect(page.locator(".span-timeline-tooltip")).to_contain_text("backward-compute, ideal")
    expect(page.locator(".span-timeline-tooltip")).to_contain_text("measured: ")
    page.mouse.click(bar["x"] + bar["width"] / 2, bar["y"] + 3)
    page.wait_for_url(f"**span=5-{key['seq']}**")

    page.get_by_text("Open in Perfetto").click()
    link = region(page, "trace").get_by_role("link", name="Chrome JSON").first
    with page.expect_download(timeout=DEADLINE_MS) as given:
        link.click()
    path = tmp_path / given.value.suggested_filename
    given.value.save_as(path)
    assert path.name == "slow-steps-25-25.json.gz"
    drawn = told_by_timeline(page, "timeline.spans().length")
    assert len(opened_json(path).slices) == drawn + 2, "the spans in the picture, and the step of each rank"

    page.goto(f"{address}?view=timeline&run=slow-rank-5&rank=5&step=20&ideal=shown")
    expect(region(page, "ideal")).to_contain_text("wait for each other in a cycle", timeout=DEADLINE_MS)
    assert told_by_timeline(page, "[timeline.ideal(), timeline.spans().length > 0]") == [None, True]
