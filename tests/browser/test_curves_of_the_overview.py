"""Curves of the Overview in a real browser: events, common zoom and pointer, wall clock, the user's own metrics."""

from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, expect

from telemetry.stores.embedded import EmbeddedStore
from tests.browser.on_page import FIGURE, control, figure, figure_data, wait_until_drawn
from tests.browser.test_one_selection import chosen, drag_along
from tests.telemetry.made_rows import insert, made
from tests.ui.synthetic_run import SyntheticRun
from ui.dashboard.address import parse_search
from ui.dashboard.chart_view import Axis
from ui.dashboard.view_state import StepRange, View

pytestmark = pytest.mark.browser
ONSET, NUM_STEPS = 40, 80
HOSTILE = "<img src=x onerror=alert(1)>"
CHARTS = ("step-time", "loss", "mfu", "tokens", "own-0")
RANGE = "plot._fullLayout.xaxis.range.map((end) => plot._fullLayout.xaxis.d2l(end))"
SAME_RANGE = f"""([selectors, first, last]) => selectors.every((selector) => {{
    const plot = document.querySelector(selector);
    const [begin, end] = {RANGE};
    return Math.abs(begin - first) < 0.6 && Math.abs(end - last) < 0.6;
}})"""


@pytest.fixture(scope="module")
def overview(store: EmbeddedStore, address: str) -> str:
    """The overview of a run in which rank 5 is slow from step 40 on, in its second attempt."""
    first = SyntheticRun(run_id="curves", slow={}, seed=1)
    first.introduce(store)
    first.advance(store, 30)
    run = SyntheticRun(run_id="curves", attempt=1, slow={}, started_ns=first.now_ns + 30 * 10**9)
    run.introduce(store)
    run.advance(store, ONSET)
    run.slow = {5: 1.4}
    run.advance(store, NUM_STEPS - ONSET)
    run.beat(store, at_ns=run.now_ns, ended=True)
    rows = [
        {"rank": 7, "seq": 10**6 + step, "step": step, "at_ns": run.started_ns + step, "metric": HOSTILE, "value": step}
        for step in range(NUM_STEPS)
    ]
    insert(store, "samples", made("samples", rows), run_id="curves", attempt=1)
    return f"{address}?view=overview&run=curves"


def click_event(page: Page, name: str, text: str) -> None:
    """Click the event whose text contains ``text``."""
    at = figure(page, name).evaluate(
        """(plot, text) => {
            plot.scrollIntoView({block: "center"});
            const trace = plot._fullData.find((each) => each.yaxis === "y2");
            const number = trace.hovertext.findIndex((each) => each.includes(text));
            const box = plot.querySelector('.nsewdrag[data-subplot="xy2"]').getBoundingClientRect();
            return [box.x + plot._fullLayout.xaxis.d2p(trace.x[number]), box.y + box.height / 2];
        }""",
        text,
    )
    page.mouse.move(at[0] - 2, at[1])
    page.mouse.move(at[0], at[1])
    expect(figure(page, name).locator(".hoverlayer")).to_contain_text(text)
    page.mouse.click(at[0], at[1])


def wait_for_range(page: Page, first: float, last: float) -> None:
    """Return once all charts show these steps."""
    page.wait_for_function(SAME_RANGE, arg=[[FIGURE.format(name=name) for name in CHARTS], first, last])


def test_an_event_opens_its_step_and_a_drag_zooms_all_curves(page: Page, overview: str) -> None:
    page.goto(overview)
    wait_until_drawn(page)
    assert figure_data(page, "own-0", "plot.querySelector('.gtitle').textContent") == HOSTILE
    drag_along(page, "loss", 29.8, 60.2)
    page.wait_for_url("**steps=30-60**")
    wait_for_range(page, 29.8, 60.2)
    shaded = "plot => plot?.layout.shapes?.some(shape => shape.type === 'rect' && shape.x0 === 30 && shape.x1 === 60)"
    page.wait_for_function(f"({shaded})(document.querySelector('[id*=mfu] .js-plotly-plot'))")
    wait_for_range(page, 29.8, 60.2)  # the charts were drawn again

    figure(page, "tokens").locator('.nsewdrag[data-subplot="xy"]').hover()
    for name in CHARTS:
        expect(figure(page, name).locator(".hoverlayer .hovertext").first).to_be_attached()
        expect(figure(page, name).locator(".spikeline").first).to_be_attached()
    figure(page, "step-time").locator('.nsewdrag[data-subplot="xy"]').dblclick()
    wait_for_range(page, -0.8, NUM_STEPS - 0.2)

    click_event(page, "step-time", "slow rank (critical)")
    page.wait_for_url("**view=timeline**")
    there = chosen(page)
    assert (there.step, there.rank, there.host, there.steps) == (ONSET, 5, "gpu-03", StepRange(30, 60))


def test_wall_clock_axis_keeps_the_selection_and_a_drag_on_it_selects_steps(page: Page, overview: str) -> None:
    page.goto(f"{overview}&steps=50-60&rank=2")
    wait_until_drawn(page)
    control(page, "charts-axis").get_by_text("Wall clock").click()
    page.wait_for_url("**axis=time**")
    page.wait_for_function(
        "selector => document.querySelector(selector)?._fullLayout?.xaxis.type === 'date'",
        arg=FIGURE.format(name="loss"),
    )
    state = parse_search(urlsplit(page.url).query).state
    assert (state.steps, state.rank, state.charts.axis) == (StepRange(50, 60), 2, Axis.TIME)
    wait_until_drawn(page)
    places = figure_data(page, "step-time", "Array.from(plot._fullData[0].x)")
    drag_along(page, "step-time", places[31 + 20] - 100, places[31 + 30] + 100)  # after 30 steps and a gap
    page.wait_for_function("!location.search.includes('steps=50-60')")
    dragged = chosen(page)
    assert dragged.steps is not None
    assert abs(dragged.steps.first - 20) + abs(dragged.steps.last - 30) <= 2, "a pixel is about a third of a step"
    assert (dragged.view, dragged.rank) == (View.OVERVIEW, 2)

    control(page, "charts-smooth").click()
    page.get_by_role("option", name="Median of 11 steps").click()
    page.wait_for_url("**smooth=11**")
    page.wait_for_function(
        "selector => document.querySelector(selector)?._fullData?.length === 3", arg=FIGURE.format(name="step-time")
    )
