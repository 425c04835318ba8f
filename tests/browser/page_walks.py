"""Walks over pages: controls used one after the other, the state of the page then, and the size of its responses."""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from playwright.sync_api import Page, Response

from tests.benchmarks.dashboard import DRAWN
from tests.browser.on_page import click_cell, control

TOLD = """() => {
    const all = (selector) => [...document.querySelectorAll(selector)];
    const name = (one) => /^{"control":"(\\w+)"}$/.exec(one.id)?.[1];
    const canvas = document.querySelector(".panel:not(.hidden) .span-timeline[data-drawn]");
    return {
        controls: Object.fromEntries(all("[id*=control]").filter(name).map((one) =>
            [name(one), one.value ?? one.querySelector("input:checked")?.value])),
        headings: all("h1, header .current, main h2, main h3, main .says").map((one) => one.innerText.trim()),
        figures: all(".panel:not(.hidden) .js-plotly-plot").map((plot) =>
            plot._fullData.map((trace) => [trace.type, trace.x?.length, trace.y?.length])),
        rows: canvas && [...canvas.timeline.rows()],
        zoom: canvas && canvas.timeline.window().map(Math.round),
    };
}"""


class Use(NamedTuple):
    """A control that is used, and a pattern of the address after it."""

    name: str
    by: Callable[[Page], None]
    leads_to: str


def told(page: Page) -> dict[str, Any]:
    """The current state of a page: values of controls, headings, sizes of figures, rows and zoom of a timeline."""
    found: dict[str, Any] = page.evaluate(TOLD)
    return found


def picked(name: str, text: str, leads_to: str) -> Use:
    """Click one of a few visible choices."""
    return Use(f"{name} of {text}", lambda page: control(page, name).get_by_text(text, exact=True).click(), leads_to)


def listed(name: str, text: str, leads_to: str) -> Use:
    """Type the name of an entry of a list and click it."""

    def by(page: Page) -> None:
        control(page, name).fill(text)
        page.get_by_role("option", name=text, exact=True).click()

    return Use(f"{name} of {text}", by, leads_to)


def typed(name: str, text: str, leads_to: str) -> Use:
    """Type a number or a short text."""

    def by(page: Page) -> None:
        control(page, name).fill(text)
        control(page, name).press("Enter")

    return Use(f"{name} of {text or 'nothing'}", by, leads_to)


def followed(name: str, leads_to: str, *, within: str = "main") -> Use:
    """Click the first link with this name."""
    return Use(name, lambda page: page.locator(within).get_by_role("link", name=name).first.click(), leads_to)


def clicked(figure: str, row: float, column: float, leads_to: str) -> Use:
    """Click a cell of a figure."""
    return Use(f"a cell of {figure}", lambda page: click_cell(page, figure, row, column), leads_to)


def gone_back(leads_to: str) -> Use:
    """Use the back button of the browser."""

    def by(page: Page) -> None:
        page.go_back()

    return Use("back", by, leads_to)


def use(page: Page, one: Use) -> None:
    """Use a control. Return once the address has changed and every part is drawn."""
    one.by(page)
    page.wait_for_url(re.compile(one.leads_to), wait_until="commit")
    page.wait_for_function(DRAWN)


class Opened:
    """A page that is opened repeatedly by address, and the responses that it receives."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self._answers: list[Response] = []
        page.on("response", self._keep)

    def open(self, address: str) -> None:
        """Return once every part is drawn."""
        self.page.goto("about:blank")  # cancels the pending requests of the previous page
        self._answers.clear()
        self.page.goto(address)
        self.page.wait_for_function(DRAWN)

    def megabytes(self) -> float:
        """The size of all responses since the page was opened, before compression."""
        return sum(len(answer.body()) for answer in list(self._answers) if answer.status == 200) / 1e6

    def _keep(self, answer: Response) -> None:
        if "_dash-update-component" in answer.url:
            self._answers.append(answer)
