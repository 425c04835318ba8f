"""The timeline's canvas: zoom, pan, selection, pins, areas, search and keys, and the state that a link restores."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from telemetry.stages import Stage
from tests.browser.conftest import SIZE, page_of_another, watched_page
from tests.browser.on_page import click_span, region, spans_canvas, timeline, told_by_timeline, wait_until_drawn
from tests.ui.few_spans import buffer_of, made_spans

pytestmark = pytest.mark.browser

MOVED_OVER_NEW_SPANS = """(() => {
    const {view} = timeline, {canvas} = view.parts, {x, y, width, height} = canvas.getBoundingClientRect();
    view.load(argument);
    canvas.dispatchEvent(new PointerEvent("pointermove", {clientX: x + width / 2, clientY: y + height * 0.9}));
    view.selectionChanged();
    return timeline.rows();
})()"""
"""The rows on the screen after new spans arrived and the pointer moved, before the spans are drawn."""
STEP = "?view=timeline&run=slow-rank-5&group=all&rank=5&step=20"


@pytest.fixture(scope="module")
def page_of_all(context: BrowserContext, address: str) -> Iterator[Page]:
    """A page that several tests use."""
    with watched_page(context) as page:
        opened(page, address)
        yield page


@pytest.fixture
def at_step(page_of_all: Page) -> Page:
    """A page that shows the whole step, and no selection."""
    page_of_all.mouse.move(0, 0)
    page_of_all.keyboard.press("Escape")
    page_of_all.keyboard.press("f")
    page_of_all.wait_for_url(re.compile("^(?!.*(span|zoom)=)"))
    return page_of_all


def opened(page: Page, address: str, search: str = STEP) -> None:
    page.goto(address + search)
    wait_until_drawn(page)
    spans_canvas(page).scroll_into_view_if_needed()


def window(page: Page) -> list[float]:
    found: list[float] = told_by_timeline(page, "timeline.window()")
    return found


def length(page: Page) -> float:
    first, last = window(page)
    return last - first


def box_of(page: Page, stage: str, rank: int = 5, number: int = 0) -> dict[str, Any]:
    """Where a span is drawn, in pixels of the browser's window."""
    found = told_by_timeline(
        page, "timeline.where(timeline.spans(argument[0])[argument[1]])", [{"stage": stage, "rank": rank}, number]
    )
    assert found is not None
    return dict(found)


def point_at(page: Page, stage: str, rank: int = 5, number: int = 0) -> None:
    box = box_of(page, stage, rank, number)
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)


def test_mouse_wheel_zooms_at_the_pointer_and_the_link_restores_the_zoom(at_step: Page) -> None:
    whole, before = length(at_step), box_of(at_step, "forward-compute", number=2)
    point_at(at_step, "forward-compute", number=2)
    at_step.mouse.wheel(0, -500)
    at_step.wait_for_url("**zoom=**")
    after = box_of(at_step, "forward-compute", number=2)
    assert length(at_step) < whole / 2
    assert after["x"] + after["width"] / 2 == pytest.approx(before["x"] + before["width"] / 2, abs=3)
    with page_of_another(at_step) as other:
        opened(other, at_step.url, "")
        assert window(other) == pytest.approx(window(at_step), abs=1)


@pytest.mark.long
def test_zoom_adds_no_entries_to_the_browser_history(page: Page, address: str) -> None:
    page.goto(f"{address}?view=overview&run=slow-rank-5")
    wait_until_drawn(page)
    page.get_by_role("link", name="Show timeline").click()
    timeline(page)
    wait_until_drawn(page)
    for _ in range(3):
        before = page.url
        page.keyboard.press("w")
        page.wait_for_function("before => location.href !== before", arg=before)
    assert "zoom=" in page.url
    page.go_back()
    page.wait_for_url("**view=overview**")


def test_keys_zoom_pan_and_fit(at_step: Page) -> None:
    whole = window(at_step)
    at_step.keyboard.press("w")
    at_step.keyboard.press("w")
    zoomed = window(at_step)
    assert zoomed[1] - zoomed[0] == pytest.approx((whole[1] - whole[0]) / 1.35**2)
    at_step.keyboard.press("d")
    assert window(at_step)[0] > zoomed[0]
    at_step.keyboard.press("a")
    assert window(at_step) == pytest.approx(zoomed)
    at_step.keyboard.press("s")
    assert length(at_step) == pytest.approx((whole[1] - whole[0]) / 1.35)
    at_step.keyboard.press("f")
    assert window(at_step) == pytest.approx(whole)


def test_dragging_pans_the_timeline_and_selects_no_span(at_step: Page) -> None:
    point_at(at_step, "optimizer")
    at_step.keyboard.press("w")
    at_step.keyboard.press("w")
    before, box = window(at_step), box_of(at_step, "optimizer")
    at_step.mouse.down()
    at_step.mouse.move(box["x"] - 150, box["y"] + 3, steps=4)
    at_step.mouse.up()
    assert window(at_step)[0] > before[0]
    assert length(at_step) == pytest.approx(before[1] - before[0])
    assert told_by_timeline(at_step, "timeline.selected().key") is None


@pytest.mark.long
def test_key_f_fits_the_selected_span(page: Page, address: str) -> None:
    opened(page, address)
    click_span(page, "grads-reduce-scatter")
    page.keyboard.press("f")
    key = told_by_timeline(page, "timeline.selected().key")
    box = told_by_timeline(page, "timeline.where(argument)", key)
    width = spans_canvas(page).bounding_box()
    assert width is not None
    assert box["width"] > width["width"] / 3


def test_selected_collective_shows_its_partners_and_escape_clears_the_selection(at_step: Page) -> None:
    key = click_span(at_step, "grads-reduce-scatter")
    at_step.wait_for_url("**span=**")
    partners = told_by_timeline(at_step, "timeline.selected().partners")
    assert [one["rank"] for one in partners] == [key["rank"] + 4]
    assert {one["stage"] for one in partners} == {"grads-reduce-scatter"}
    at_step.keyboard.press("Escape")
    at_step.wait_for_url(re.compile("^(?!.*span=)"))
    assert told_by_timeline(at_step, "timeline.selected()") == {"key": None, "partners": []}


def test_selected_receive_shows_its_send_as_partner(at_step: Page, page: Page, address: str) -> None:
    key = told_by_timeline(at_step, "timeline.spans({stage: 'backward-recv', rank: 5})[0]")
    page.goto(f"{address}{STEP}&span=5-{key['seq']}")
    page.wait_for_function("document.querySelector('.span-timeline')?.timeline?.selected?.().partners.length === 1")
    (partner,) = told_by_timeline(page, "timeline.selected().partners")
    assert (partner["rank"], partner["stage"]) == (7, "backward-send")


def test_full_stop_and_comma_keys_select_the_next_and_previous_span_of_the_lane(at_step: Page) -> None:
    click_span(at_step, "forward-compute")
    first = told_by_timeline(at_step, "timeline.selected().key")
    at_step.keyboard.press(".")
    second = told_by_timeline(at_step, "timeline.selected().key")
    assert second["rank"] == first["rank"]
    assert second["seq"] != first["seq"]
    at_step.wait_for_url(f"**span={second['rank']}-{second['seq']}**")
    at_step.keyboard.press(",")
    assert told_by_timeline(at_step, "timeline.selected().key") == first
    expect(timeline(at_step).locator("[aria-live]")).to_contain_text("forward-compute")


@pytest.mark.long
def test_bracket_key_opens_the_next_step_and_keeps_the_zoom(page: Page, address: str) -> None:
    opened(page, address)
    page.keyboard.press("w")
    page.wait_for_url("**zoom=**")
    zoomed = window(page)
    expect(page.locator("a.step-next[href*='zoom=']")).to_be_visible()
    page.keyboard.press("]")
    expect(region(page, "spans-title")).to_contain_text("Step 21, all ranks")
    assert window(page) == pytest.approx(zoomed, rel=0.05)


@pytest.mark.long
def test_search_finds_the_spans_of_a_stage_by_its_name(page: Page, address: str) -> None:
    opened(page, address)
    page.keyboard.press("/")
    page.keyboard.type("optimizer")
    expect(timeline(page).get_by_role("status")).to_have_text("16 spans")
    page.keyboard.press("Enter")
    assert told_by_timeline(page, "timeline.view.selected >= 0")
    page.keyboard.press("Escape")
    expect(timeline(page).get_by_role("status")).to_have_text("")


@pytest.mark.long
def test_dialog_of_keyboard_shortcuts_opens_and_closes(page: Page, address: str) -> None:
    opened(page, address)
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="keyboard shortcuts")).to_contain_text("mark an area")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="keyboard shortcuts")).to_be_hidden()


def test_tooltip_describes_the_span_under_the_pointer(at_step: Page) -> None:
    point_at(at_step, "forward-compute")
    tooltip = at_step.locator(".span-timeline-tooltip")
    for text in ("forward-compute", "rank 5, step 20, microbatch 0", "dp1 pp0 tp1 · gpu-03"):
        expect(tooltip).to_contain_text(text)
    point_at(at_step, "forward-recv", rank=7)
    expect(tooltip).to_contain_text("from rank 5")


def test_pointer_move_is_safe_while_spans_are_replaced(page: Page, address: str) -> None:
    opened(page, address)
    one_row = buffer_of(made_spans((0, Stage.FORWARD_COMPUTE, 0, 100)), {0: "rank 0"})
    assert told_by_timeline(page, MOVED_OVER_NEW_SPANS, one_row) == []
    page.wait_for_function("() => document.querySelector('.span-timeline').timeline.rows().length === 1")


@pytest.mark.long
def test_marked_area_shows_statistics_per_stage_and_the_link_restores_it(page: Page, address: str) -> None:
    opened(page, address)
    first, last = box_of(page, "data-load", rank=4), box_of(page, "optimizer", rank=5)
    page.keyboard.down("Shift")
    page.mouse.move(first["x"] + 1, first["y"])
    page.mouse.down()
    page.mouse.move(last["x"] + last["width"], last["y"], steps=5)
    page.mouse.up()
    page.keyboard.up("Shift")
    statistics = region(page, "area").get_by_role("table")
    row = statistics.get_by_role("row", name=re.compile("^forward-compute"))
    expect(row).to_contain_text("8")
    expect(region(page, "area")).to_contain_text("2 ranks (4-5)")
    told = region(page, "area").inner_text()
    with page_of_another(page) as other:
        opened(other, page.url, "")
        expect(region(other, "area")).to_contain_text("forward-compute")
        assert region(other, "area").inner_text() == told
    page.keyboard.press("Escape")
    expect(region(page, "area")).to_be_empty()


@pytest.mark.long
def test_click_on_a_rank_name_pins_the_rank_to_the_top_and_the_link_restores_it(page: Page, address: str) -> None:
    opened(page, address)
    box, canvas = box_of(page, "optimizer", rank=6), spans_canvas(page).bounding_box()
    assert canvas is not None
    page.mouse.click(canvas["x"] + 20, box["y"])
    page.wait_for_url("**pins=6**")
    page.wait_for_function("document.querySelector('.span-timeline').timeline.rows()[0] === 6")
    with page_of_another(page) as other:
        opened(other, page.url, "")
        assert told_by_timeline(other, "timeline.rows()")[:2] == [6, 0]


def test_low_window_shows_which_rows_are_visible(at_step: Page) -> None:
    hidden = at_step.locator(".span-timeline-hidden-rows")
    expect(hidden).to_be_empty()
    at_step.set_viewport_size({"width": 1440, "height": 400})
    try:
        expect(hidden).to_have_text("Rows 1 to 4 of 8. Drag, or Shift + wheel, to scroll.")
    finally:
        at_step.set_viewport_size(SIZE)
    expect(hidden).to_be_empty()


def test_the_canvas_is_reached_by_keyboard_and_has_a_name(at_step: Page) -> None:
    picture = at_step.get_by_role("application", name="spans of each rank over the step")
    picture.focus()
    at_step.keyboard.press(".")
    at_step.wait_for_url("**span=**")
    expect(region(at_step, "details")).to_contain_text("its peers")
    at_step.keyboard.press("ArrowDown")
    assert told_by_timeline(at_step, "timeline.selected().key") is not None
