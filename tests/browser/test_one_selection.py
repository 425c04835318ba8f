"""All pages share one selection, and the address restores it, in a real browser."""

import re
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, expect

from telemetry.stages import Stage
from telemetry.stores.embedded import EmbeddedStore
from tests.browser.conftest import page_of_another
from tests.browser.on_page import (
    click_cell,
    control,
    figure,
    figure_data,
    region,
    spans_canvas,
    told_by_timeline,
    wait_until_drawn,
)
from tests.browser.page_walks import told
from tests.ui.synthetic_run import SyntheticRun
from ui.dashboard.address import parse_search
from ui.dashboard.pages import PAGES
from ui.dashboard.view_state import Metric, StepRange, View, ViewState

pytestmark = pytest.mark.browser
ONSET, NUM_STEPS = 40, 80
RATIOS = "Array.from(plot.calcdata[0][0].z[5])"
COLUMNS = "Array.from(plot._fullData[0].x)"


@pytest.fixture(scope="module")
def late(store: EmbeddedStore, address: str) -> str:
    """Address of the overview of a run in which rank 5 is slow from step 40 on."""
    run = SyntheticRun(run_id="slow-later", slow={})
    run.introduce(store)
    run.advance(store, ONSET)
    run.slow = {5: 1.4}
    run.advance(store, NUM_STEPS - ONSET)
    run.beat(store, at_ns=run.now_ns, ended=True)
    return f"{address}?view=overview&run=slow-later"


def chosen(page: Page) -> ViewState:
    """The selection in the address, all of it valid."""
    state, notes = parse_search(urlsplit(page.url).query)
    assert notes == ()
    return state


def wait_for(page: Page, view: View) -> ViewState:
    """Wait until the page of a view is drawn, and return its selection."""
    page.wait_for_function("view => document.querySelector('main').dataset.drawn?.startsWith(`${view}/`)", arg=view)
    wait_until_drawn(page)
    return chosen(page)


def open_tab(page: Page, view: View) -> ViewState:
    """Click a tab, and return the selection on its page."""
    name = PAGES[view].title
    page.get_by_role("navigation", name="views").get_by_role("link", name=name, exact=True).click()
    return wait_for(page, view)


def drag_along(page: Page, name: str, first: float, last: float) -> None:
    """Drag over the steps of a chart, from ``first`` to ``last``."""
    wait_until_drawn(page)
    from_px, to_px, top_px = figure(page, name).evaluate(
        """(plot, steps) => {
            plot.scrollIntoView({block: "center"});
            const box = plot.querySelector(".nsewdrag").getBoundingClientRect();
            return [...steps.map((step) => box.x + plot._fullLayout.xaxis.l2p(step)), box.y + box.height / 2];
        }""",
        [first, last],
    )
    page.mouse.move(from_px, top_px)
    page.mouse.down()
    page.mouse.move(to_px, top_px, steps=8)
    page.mouse.up()


def test_selection_of_a_finding_is_kept_from_page_to_page_and_on_the_way_back(page: Page, late: str) -> None:
    page.goto(late)
    page.get_by_role("link", name="Show heat map").click()
    at_onset = wait_for(page, View.HEAT_MAP)
    assert (at_onset.rank, at_onset.host, at_onset.metric) == (5, "gpu-03", Metric.RATIO)
    assert at_onset.stage in (Stage.FORWARD_COMPUTE, Stage.BACKWARD_COMPUTE)
    assert at_onset.steps == StepRange.around(ONSET)
    expect(control(page, "stage")).to_have_value(at_onset.stage.label)
    assert figure_data(page, "cells", COLUMNS) == [*range(20, NUM_STEPS)]
    ratios = figure_data(page, "cells", RATIOS)
    assert max(ratios[:20]) < 1.2 < min(ratios[20:])
    expect(figure(page, "cells").locator(".ytick text").filter(has_text="suspect")).to_be_in_viewport()

    drag_along(page, "cells", 45.2, 54.9)
    page.wait_for_url("**steps=45-55**")
    page.wait_for_function("document.querySelector('[id*=cells] .js-plotly-plot')._fullData[0].x.length === 11")
    brushed = chosen(page)
    assert (brushed.rank, brushed.stage, brushed.host) == (5, at_onset.stage, "gpu-03")

    timeline = open_tab(page, View.TIMELINE)
    assert timeline.search() == brushed.search().replace("heatmap", "timeline")
    title = region(page, "spans-title").inner_text()
    assert int(re.findall(r"Step (\d+), pipeline group of rank 5", title)[0]) in range(45, 56)
    row = told_by_timeline(page, "timeline.where(timeline.spans({rank: 7, stage: 'optimizer'})[0])")
    page.mouse.click(spans_canvas(page).bounding_box()["x"] + 20, row["y"])  # type: ignore[index]
    page.wait_for_url("**pins=7**")

    assert open_tab(page, View.GRID).pins == (7,)
    expect(region(page, "grid-rank")).to_contain_text("Rank 5")
    click_cell(page, "grid", row=0, column=3)
    page.wait_for_url("**rank=2**")
    expect(page.get_by_role("group", name="selection")).to_contain_text("rank 2")

    again = open_tab(page, View.TIMELINE)
    assert (again.rank, again.pins, again.steps) == (2, (7,), StepRange(45, 55))
    expect(region(page, "spans-title")).to_contain_text("pipeline group of rank 2 and pinned rank 7")
    assert told_by_timeline(page, "timeline.rows()") == [7, 0, 2]
    with page_of_another(page) as other:
        other.goto(page.url)
        wait_until_drawn(other)
        assert told(other) == told(page)

    for view in (View.GRID, View.GRID, View.TIMELINE, View.TIMELINE, View.HEAT_MAP):
        page.go_back()
        page.wait_for_function("view => location.search.includes(`view=${view}&`)", arg=view)
    assert wait_for(page, View.HEAT_MAP) == brushed
    assert figure_data(page, "cells", COLUMNS) == [*range(45, 56)]
    page.go_back()
    page.wait_for_url("**steps=20-119**")
    page.wait_for_function("document.querySelector('[id*=cells] .js-plotly-plot')._fullData[0].x.length === 60")


def test_heat_map_scrolls_to_a_suspect_below_the_window(page: Page, late: str) -> None:
    page.set_viewport_size({"width": 1440, "height": 500})
    page.goto(late)
    page.get_by_role("link", name="Show heat map").click()
    wait_for(page, View.HEAT_MAP)
    expect(figure(page, "cells").locator(".ytick text").filter(has_text="suspect")).to_be_in_viewport()
    assert page.evaluate("scrollY") > 0


def test_drag_over_a_curve_selects_steps_and_another_run_opens_without_selected_steps(page: Page, late: str) -> None:
    page.goto(late)
    drag_along(page, "step-time", 29.8, 50.3)
    page.wait_for_url("**steps=30-50**")
    shaded = "plot => plot.layout.shapes?.find(shape => shape.type === 'rect' && shape.x0 === 30 && shape.x1 === 50)"
    page.wait_for_function(f"({shaded})(document.querySelector('[id*=loss] .js-plotly-plot'))")
    page.get_by_role("link", name="Runs", exact=True).click()
    page.get_by_role("link", name="slow-rank-5", exact=True).click()
    expect(page.locator("h1")).to_have_text("slow-rank-5")
    assert chosen(page).steps is None
