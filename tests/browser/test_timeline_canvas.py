"""The timeline's canvas: zoom, pan, selection, pins, areas, search and keys, and the state that a link restores."""

import re
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from telemetry.stages import Stage
from tests.browser.conftest import page_of_another
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


def test_mouse_wheel_zooms_at_the_pointer_and_the_link_restores_the_zoom(page: Page, address: str) -> None:
    opened(page, address)
    whole, before = length(page), box_of(page, "forward-compute", number=2)
    point_at(page, "forward-compute", number=2)
    page.mouse.wheel(0, -500)
    page.wait_for_url("**zoom=**")
    after = box_of(page, "forward-compute", number=2)
    assert length(page) < whole / 2
    assert after["x"] + after["width"] / 2 == pytest.approx(before["x"] + before["width"] / 2, abs=3)
    with page_of_another(page) as other:
        opened(other, page.url, "")
        assert window(other) == pytest.approx(window(page), abs=1)


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


def test_keys_zoom_pan_and_fit(page: Page, address: str) -> None:
    opened(page, address)
    whole = window(page)
    page.keyboard.press("w")
    page.keyboard.press("w")
    zoomed = window(page)
    assert zoomed[1] - zoomed[0] == pytest.approx((whole[1] - whole[0]) / 1.35**2)
    page.keyboard.press("d")
    assert window(page)[0] > zoomed[0]
    page.keyboard.press("a")
    assert window(page) == pytest.approx(zoomed)
    page.keyboard.press("s")
    assert length(page) == pytest.approx((whole[1] - whole[0]) / 1.35)
    page.keyboard.press("f")
    assert window(page) == pytest.approx(whole)


def test_dragging_pans_the_timeline_and_selects_no_span(page: Page, address: str) -> None:
    opened(page, address)
    point_at(page, "optimizer")
    page.keyboard.press("w")
    page.keyboard.press("w")
    before, box = window(page), box_of(page, "optimizer")
    page.mouse.down()
    page.mouse.move(box["x"] - 150, box["y"] + 3, steps=4)
    page.mouse.up()
    assert window(page)[0] > before[0]
    assert length(page) == pytest.approx(before[1] - before[0])
    assert told_by_timeline(page, "timeline.selected().key") is None


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


def test_selected_collective_shows_its_partners_and_escape_clears_the_selection(page: Page, address: str) -> None:
    opened(page, address)
    key = click_span(page, "grads-reduce-scatter")
    page.wait_for_url("**span=**")
    partners = told_by_timeline(page, "timeline.selected().partners")
    assert [one["rank"] for one in partners] == [key["rank"] + 4]
    assert {one["stage"] for one in partners} == {"grads-reduce-scatter"}
    page.keyboard.press("Escape")
    page.wait_for_url(re.compile("^(?!.*span=)"))
    assert told_by_timeline(page, "timeline.selected()") == {"key": None, "partners": []}


def test_selected_receive_shows_its_send_as_partner(page: Page, address: str) -> None:
    opened(page, address)
    key = told_by_timeline(page, "timeline.spans({stage: 'backward-recv', rank: 5})[0]")
    page.goto(f"{address}{STEP}&span=5-{key['seq']}")
    page.wait_for_function("document.querySelector('.span-timeline')?.timeline?.selected?.().partners.length === 1")
    (partner,) = told_by_timeline(page, "timeline.selected().partners")
    assert (partner["rank"], partner["stage"]) == (7, "backward-send")


def test_full_stop_and_comma_keys_select_the_next_and_previous_span_of_the_lane(page: Page, address: str) -> None:
    opened(page, address)
    click_span(page, "forward-compute")
    first = told_by_timeline(page, "timeline.selected().key")
    page.keyboard.press(".")
    second = told_by_timeline(page, "timeline.selected().key")
    assert second["rank"] == first["rank"]
    assert second["seq"] != first["seq"]
    page.wait_for_url(f"**span={second['rank']}-{second['seq']}**")
    page.keyboard.press(",")
    assert told_by_timeline(page, "timeline.selected().key") == first
    expect(timeline(page).locator("[aria-live]")).to_contain_text("forward-compute")


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


def test_tooltip_describes_the_span_under_the_pointer(page: Page, address: str) -> None:
    opened(page, address)
    point_at(page, "forward-compute")
    tooltip = page.locator(".span-timeline-tooltip")
    for text in ("forward-compute", "rank 5, step 20, microbatch 0", "dp1 pp0 tp1 · gpu-03"):
        expect(tooltip).to_contain_text(text)
    point_at(page, "forward-recv", rank=7)
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


def test_low_window_shows_which_rows_are_visible(page: Page, address: str) -> None:
    opened(page, address)
    hidden = page.locator(".span-timeline-hidden-rows")
    expect(hidden).to_be_empty()
    page.set_viewport_size({"width": 1440, "height": 400})
    expect(hidden).to_have_text("Rows 1 to 4 of 8. Drag, or Shift + wheel, to scroll.")


@pytest.mark.long
def test_canvas_has_the_pixel_ratio_of_the_device_and_grows_with_the_window(browser: Browser, address: str) -> None:
    with browser.new_context(viewport={"width": 1000, "height": 800}, device_scale_factor=2) as context:
        page = context.new_page()
        opened(page, address)
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
    opened(page, address)
    light = told_by_timeline(page, corner)
    page.get_by_role("button", name="switch between light and dark").click()
    page.wait_for_function("document.documentElement.dataset.mantineColorScheme === 'dark'")
    page.wait_for_function("document.querySelector('.span-timeline').timeline.view.frameRequest === null")
    assert light > 200
    assert told_by_timeline(page, corner) < 80


def test_the_canvas_is_reached_by_keyboard_and_has_a_name(page: Page, address: str) -> None:
    opened(page, address)
    picture = page.get_by_role("application", name="spans of each rank over the step")
    picture.focus()
    page.keyboard.press(".")
    page.wait_for_url("**span=**")
    expect(region(page, "details")).to_contain_text("its peers")
    page.keyboard.press("ArrowDown")
    assert told_by_timeline(page, "timeline.selected().key") is not None
