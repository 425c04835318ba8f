"""Reads docs/guides/find-the-culprit.md: for each section, the links that the reader clicks, in order.

## A slow rank                                 <- the fault, as tests/scenarios/unlabelled_runs.py names it
1. Click **Show heat map**: ...                <- a link of the page
"""

import re
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.browser.on_page import region, wait_until_drawn
from tests.scenarios.unlabelled_runs import Unlabelled
from ui.dashboard.address import parse_search
from ui.dashboard.pages import PAGES

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "find-the-culprit.md"
MOST_CLICKS = 3


def clicks_by_fault(text: str) -> dict[str, list[str]]:
    """Title of a section, such as ``slow rank`` -> names of the links to click."""
    sections = re.findall(r"^## (?:A |An )?(.+?)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return {title.lower(): re.findall(r"^\d+\. Click \*\*(.+?)\*\*", body, re.MULTILINE) for title, body in sections}


def open_overview(page: Page, address: str, run: Unlabelled) -> None:
    """Open the Overview, where the guide starts."""
    page.goto(f"{address}?view=overview&run={run.run_id}")
    wait_until_drawn(page)


def click(page: Page, name: str) -> None:
    """Click the first link of that name on the page, and wait for what it leads to."""
    link = page.get_by_role("main").get_by_role("link", name=name, exact=True).first
    address = str(link.get_attribute("href"))
    link.click()
    expect(region(page, next(iter(PAGES[parse_search(address).state.view].regions)))).to_be_attached()
    wait_until_drawn(page)
