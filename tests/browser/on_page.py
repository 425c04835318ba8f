"""Finding things on a page of the dashboard."""

from typing import Any

from playwright.sync_api import Locator, Page, expect

FIGURE = '[id=\'{{"chart":"{name}","part":"graph"}}\'] .js-plotly-plot'

DEADLINE_MS = 90_000
"""Eight ranks may be training on the same two cores meanwhile."""


def figure(page: Page, name: str) -> Locator:
    """A figure, once plotly has drawn it."""
    selector = FIGURE.format(name=name)
    drawn = "selector => document.querySelector(selector)?.calcdata?.length > 0"
    page.wait_for_function(drawn, arg=selector, timeout=DEADLINE_MS)
    return page.locator(selector)


def figure_data(page: Page, name: str, expression: str) -> Any:
    """``expression`` of JavaScript over ``plot``, the drawn figure's element."""
    return figure(page, name).evaluate(f"plot => {expression}")


def wait_for_points(page: Page, name: str, number: int) -> None:
    """Return once the first trace of a figure has so many points along x."""
    page.wait_for_function(
        "([selector, number]) => document.querySelector(selector)?._fullData?.[0]?.x.length === number",
        arg=[FIGURE.format(name=name), number],
        timeout=DEADLINE_MS,
    )


def wait_until_drawn(page: Page) -> None:
    """Return once every part of the page is there, so that nothing moves any more."""
    expect(page.locator("main > *").first).to_be_visible()
    expect(page.locator("main .loading, main .waiting")).to_have_count(0)


def region(page: Page, name: str) -> Locator:
    """A part of the page that is drawn by itself."""
    return page.locator(f'[id=\'{{"region":"{name}"}}\']')


def control(page: Page, name: str) -> Locator:
    """A control above a figure."""
    return page.locator(f'[id=\'{{"control":"{name}"}}\']')


def click_bar(page: Page, name: str, stage: str, number: int = 0) -> None:
    """Click the middle of the ``number``-th bar of a stage in a timeline."""
    wait_until_drawn(page)
    box = figure(page, name).evaluate(
        """(plot, [stage, number]) => {
            const trace = plot._fullData.findIndex(one => one.name === stage);
            const drawn = plot.calcdata.findIndex(one => one[0].trace.index === trace);
            const path = plot.querySelectorAll(".trace.bars")[drawn].querySelectorAll(".point path")[number];
            path.scrollIntoView({block: "center"});
            const box = path.getBoundingClientRect();
            return [box.x + box.width / 2, box.y + box.height / 2];
        }""",
        [stage, number],
    )
    page.mouse.move(box[0] - 2, box[1])
    page.mouse.click(box[0], box[1])
