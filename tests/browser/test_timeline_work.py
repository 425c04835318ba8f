"""The timeline: open spans, several steps with a minimap, counters, the last rank to start, the table of spans, and
how the canvas is drawn.
"""

import re
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from telemetry.stores.embedded import EmbeddedStore
from tests.browser.on_page import control, region, timeline, told_by_timeline, wait_until_drawn
from tests.ui.made_fleet import tell_of_hosts
from tests.ui.made_hang import STEP, S, evidence_rows
from tests.ui.synthetic_run import MS, SyntheticRun

pytestmark = pytest.mark.browser

SLOW = "?view=timeline&run=slow-rank-5&group=all&rank=5&step=20"
IN_TRACK = """(() => {
    const {view} = timeline, {placed, rowHeight, block} = view, corner = view.parts.canvas.getBoundingClientRect();
    const place = placed.find(({row}) => view.spans.rows[row].rank === argument);
    return [corner.left + view.width - 40, corner.top + rankscopeTimeline.AXIS_PX + place.top + block * rowHeight + 10];
})()"""
"""A point in the first track of counters of a rank, in pixels of the browser window."""


@pytest.fixture(scope="module", autouse=True)
def more_runs(store: EmbeddedStore) -> None:
    """A run that stalls in a step, and a run with samples of its hosts."""
    stalled = SyntheticRun(run_id="stalled", slow={}, seed=2)
    stalled.introduce(store)
    stalled.advance(store, STEP)
    stopped_ns = stalled.advance_into_a_step(store, 400 * MS)
    stalled.leave_evidence(store, evidence_rows(stopped_ns + 34 * S, in_step_ns=400 * MS))
    sampled = SyntheticRun(run_id="sampled", device="cuda", seed=3)
    sampled.introduce(store)
    sampled.advance(store, 30)
    tell_of_hosts(store, sampled)


def opened(page: Page, address: str) -> None:
    page.goto(address)
    wait_until_drawn(page)
    timeline(page)


def point_at(page: Page, key: dict[str, Any]) -> None:
    box = told_by_timeline(page, "timeline.where(argument)", key)
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)


def click_at(page: Page, key: dict[str, Any]) -> None:
    timeline(page).scroll_into_view_if_needed()
    point_at(page, key)
    page.mouse.down()
    page.mouse.up()


def test_timeline_of_a_stalled_run_shows_the_open_span_of_each_rank(page: Page, address: str) -> None:
    opened(page, f"{address}?view=timeline&run=stalled&group=all")
    keys = {key["rank"]: key for key in told_by_timeline(page, "timeline.open()")}
    assert {rank: key["stage"] for rank, key in keys.items()} == dict.fromkeys(range(8), "forward-recv") | {
        5: "data-load"
    }
    first, last = told_by_timeline(page, "timeline.window()")
    assert last - first < 600 * MS
    point_at(page, keys[4])
    for text in ("forward-recv", "rank 4, step 40", "for 34 s", "waits for rank 5"):
        expect(page.locator(".span-timeline-tooltip")).to_contain_text(text)
    box = told_by_timeline(page, "timeline.where(argument)", keys[5])
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(region(page, "details").get_by_role("heading", name="data-load, open")).to_be_visible()
    waiting = told_by_timeline(page, "timeline.where(argument)", keys[4])
    page.mouse.click(waiting["x"] + waiting["width"] / 2, waiting["y"] + waiting["height"] / 2)
    page.wait_for_function("document.querySelector('.span-timeline').timeline.selected().partners.length === 1")
    assert [partner["rank"] for partner in told_by_timeline(page, "timeline.selected().partners")] == [5]
    page.keyboard.press("Escape")
    expect(region(page, "details").get_by_role("heading", name="Step 40 is not complete")).to_be_visible()


def test_the_minimap_moves_and_zooms_several_steps(page: Page, address: str) -> None:
    opened(page, f"{address}{SLOW}&num-steps=3")
    steps = told_by_timeline(page, "timeline.steps()")
    assert [step["step"] for step in steps] == [20, 21, 22]
    assert [step["start"] for step in steps] == sorted(step["start"] for step in steps)
    frame = told_by_timeline(page, "timeline.map()")
    whole, middle = frame["right"] - frame["left"], (frame["top"] + frame["bottom"]) / 2
    page.mouse.move(frame["right"] - 1, middle)
    page.mouse.down()
    page.mouse.move(frame["left"] + whole / 3, middle, steps=4)
    page.mouse.up()
    page.wait_for_url("**zoom=**")
    first, last = told_by_timeline(page, "timeline.window()")
    assert (first, last) == pytest.approx((0, steps[-1]["end"] / 3), rel=0.02)
    page.mouse.click(frame["left"] + whole * 0.9, middle)
    moved = told_by_timeline(page, "timeline.window()")
    assert moved[1] == pytest.approx(steps[-1]["end"], rel=0.01)
    assert moved[1] - moved[0] == pytest.approx(last - first, rel=0.01)


def test_counters_control_shows_counters_below_the_lanes(page: Page, address: str) -> None:
    opened(page, f"{address}?view=timeline&run=sampled&group=all&rank=5&step=20")
    assert told_by_timeline(page, "timeline.counters()") == []
    height = told_by_timeline(page, "timeline.view.rowHeight")
    control(page, "counters").get_by_text("All").click()
    page.wait_for_url("**counters=all**")
    expect(region(page, "counters").get_by_role("columnheader", name="SM clock, MHz")).to_be_visible()
    page.wait_for_function("document.querySelector('.span-timeline').timeline.counters().length === 3")
    assert told_by_timeline(page, "timeline.view.rowHeight") > height + 50
    wait_until_drawn(page)
    timeline(page).scroll_into_view_if_needed()
    row = told_by_timeline(page, "timeline.rows()[0]")
    page.mouse.move(*told_by_timeline(page, IN_TRACK, row))
    expect(page.locator(".span-timeline-tooltip")).to_contain_text("SM clock")
    expect(page.locator(".span-timeline-tooltip")).to_contain_text("MHz")


def test_last_rank_to_start_a_collective_is_marked(page: Page, address: str) -> None:
    """Ranks 4 and 5 are on one host, so that their times can be compared."""
    opened(page, address + SLOW)
    gather, transfer = (
        told_by_timeline(page, "timeline.spans(argument)[0]", {"stage": stage, "rank": 4})
        for stage in ("tp-all-gather", "backward-recv")
    )
    click_at(page, gather)
    page.wait_for_function("document.querySelector('.span-timeline').timeline.selected().partners.length === 1")
    latest = told_by_timeline(page, "timeline.latest()")
    assert (latest["rank"], latest["stage"]) == (5, "tp-all-gather")
    expect(region(page, "details")).to_contain_text("last to start")
    click_at(page, transfer)
    page.wait_for_url(f"**span=4-{transfer['seq']}**")
    page.wait_for_function("document.querySelector('.span-timeline').timeline.selected().partners.length === 1")
    assert told_by_timeline(page, "timeline.latest()") is None


def test_span_table_is_sorted_by_a_click_and_links_to_a_span(page: Page, address: str) -> None:
    opened(page, address + SLOW)
    page.get_by_role("button", name=re.compile("spans as a table")).click()
    page.wait_for_url("**table=start**")
    table = region(page, "span-table")
    for sign, order in (("", "ascending"), ("-", "descending")):
        table.get_by_role("button", name=re.compile("^duration, ms")).click()
        page.wait_for_url(f"**table={sign}duration**")
        expect(table.get_by_role("columnheader", name=re.compile("^duration, ms"))).to_have_attribute(
            "aria-sort", order
        )
    table.get_by_role("button", name="Next").click()
    page.wait_for_url("**table-page=2**")
    expect(table).to_contain_text("Rows 51 to 100 of")
    table.get_by_role("link").first.click()
    page.wait_for_url("**span=**")
    page.wait_for_function("document.querySelector('.span-timeline').timeline.view.selected >= 0")


def test_timeline_rows_are_sorted_by_compute_time_and_the_link_restores_the_order(page: Page, address: str) -> None:
    opened(page, address + SLOW)
    control(page, "rank-order").get_by_text("Compute time").click()
    page.wait_for_url("**rank-order=compute**")
    page.wait_for_function("document.querySelector('.span-timeline').timeline.rows()[0] === 5")
    opened(page, page.url)
    assert told_by_timeline(page, "timeline.rows()[0]") == 5


@pytest.mark.long
def test_canvas_has_the_pixel_ratio_of_the_device_and_grows_with_the_window(browser: Browser, address: str) -> None:
    with browser.new_context(viewport={"width": 1000, "height": 800}, device_scale_factor=2) as context:
        page = context.new_page()
        opened(page, address + SLOW)
        sizes = "[...['width', 'clientWidth']].map((name) => timeline.view.parts.canvas[name])"
        device, css = told_by_timeline(page, sizes)
        assert device == 2 * css
        page.set_viewport_size({"width": 1400, "height": 800})
        page.wait_for_function(
            "before => document.querySelector('.span-timeline canvas:not(.span-timeline-map)').clientWidth > before",
            arg=css,
        )


@pytest.mark.long
def test_canvas_colours_follow_the_colour_scheme_of_the_page(page: Page, address: str) -> None:
    corner = """(() => {
        const {canvas} = timeline.view.parts;
        return canvas.getContext("2d").getImageData(2, canvas.height - 2, 1, 1).data[0];
    })()"""
    page.emulate_media(color_scheme="light")
    opened(page, address + SLOW)
    light = told_by_timeline(page, corner)
    page.get_by_role("button", name="switch between light and dark").click()
    page.wait_for_function("document.documentElement.dataset.mantineColorScheme === 'dark'")
    page.wait_for_function("document.querySelector('.span-timeline').timeline.view.frameRequest === null")
    assert light > 200
    assert told_by_timeline(page, corner) < 80
