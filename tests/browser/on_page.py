"""Finding things on a page of the dashboard."""

from typing import Any

from playwright.sync_api import Locator, Page, expect

FIGURE = '[id=\'{{"chart":"{name}","part":"graph"}}\'] .js-plotly-plot'
STILL_TO_COME = ", ".join(
    [
        "main .loading",
        "main .waiting",
        ".panel:not(.hidden) .figure:not(:has(.main-svg))",
        ".panel:not(.hidden) .span-timeline:not([data-drawn])",
    ]
)

DEADLINE_MS = 90_000
"""Eight ranks may be training on the same two cores meanwhile."""
CHECK_MS = 50
"""Time between two checks whether a page is drawn. By default, Playwright checks at each frame, which takes time."""


def figure(page: Page, name: str) -> Locator:
    """A figure, once plotly has drawn it."""
    selector = FIGURE.format(name=name)
    drawn = "selector => document.querySelector(selector)?.calcdata?.length > 0"
    page.wait_for_function(drawn, arg=selector, timeout=DEADLINE_MS, polling=CHECK_MS)
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
        polling=CHECK_MS,
    )


def wait_until_drawn(page: Page, *, timeout_ms: float | None = None) -> None:
    """Return once every part of the page is there, so that nothing moves any more."""
    expect(page.locator("main > *").first).to_be_visible(timeout=timeout_ms)
    expect(page.locator(STILL_TO_COME)).to_have_count(0, timeout=timeout_ms)


def region(page: Page, name: str) -> Locator:
    """A part of the page that is drawn by itself."""
    return page.locator(f'[id=\'{{"region":"{name}"}}\']')


def control(page: Page, name: str) -> Locator:
    """A control above a figure."""
    return page.locator(f'[id=\'{{"control":"{name}"}}\']')


def click_cell(page: Page, name: str, row: float, column: float) -> None:
    """Click a cell of a figure by its place there."""
    wait_until_drawn(page)
    at = figure(page, name).evaluate(
        """(plot, [row, column]) => {
            plot.scrollIntoView({block: "center"});
            const {xaxis, yaxis} = plot._fullLayout;
            const box = plot.querySelector(".nsewdrag").getBoundingClientRect();
            return [box.x + xaxis.l2p(column), box.y + yaxis.l2p(row)];
        }""",
        [row, column],
    )
    page.mouse.move(at[0] - 2, at[1])
    page.mouse.move(*at)
    # Plotly ignores a click until it has drawn what is under the pointer.
    page.wait_for_function("plot => plot._hoverdata?.length", arg=figure(page, name).element_handle())
    page.mouse.click(*at)


def timeline(page: Page) -> Locator:
    """The timeline's canvas component, once it has drawn its spans.

    ui/dashboard/assets/timeline/hook.js defines its ``timeline``.
    """
    drawn = "() => document.querySelector('.span-timeline')?.dataset.drawn"
    page.wait_for_function(drawn, timeout=DEADLINE_MS, polling=CHECK_MS)
    return page.locator(".span-timeline")


def spans_canvas(page: Page) -> Locator:
    """The canvas with the spans. The minimap above it is another canvas."""
    return timeline(page).locator("canvas:not(.span-timeline-map)")


def told_by_timeline(page: Page, expression: str, argument: Any = None) -> Any:
    """``expression`` of JavaScript over ``timeline``, the component's hook, and ``argument``."""
    return timeline(page).evaluate(
        f"(element, argument) => {{ const {{timeline}} = element; return {expression}; }}", argument
    )


def click_span(page: Page, stage: str, number: int = 0) -> dict[str, Any]:
    """Click the middle of the ``number``-th span of a stage in the timeline, rows from the top; its key."""
    wait_until_drawn(page)
    key = told_by_timeline(page, "timeline.spans({stage: argument[0]})[argument[1]]", [stage, number])
    spans_canvas(page).scroll_into_view_if_needed()
    box = told_by_timeline(page, "timeline.where(argument)", key)
    assert box is not None, f"{key} is not on the screen"
    page.mouse.move(box["x"] + box["width"] / 2 - 2, box["y"] + box["height"] / 2)
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    return dict(key)
