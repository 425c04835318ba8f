"""Results of axe on every page, light and dark: names for screen readers, contrast, roles, order of headings."""

from collections.abc import Iterator
from typing import Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from tests.browser.on_page import wait_until_drawn
from tests.ui.screenshots import made_dashboard

pytestmark = [pytest.mark.browser, pytest.mark.long]

GRAVE = ("serious", "critical")
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


@pytest.fixture(scope="module")
def addresses() -> Iterator[dict[str, str]]:
    with made_dashboard() as (root, pages):
        yield {name: root + search for name, search in pages.items()}


def test_axe_finds_no_serious_or_critical_fault_on_any_page(page: Page, addresses: dict[str, str]) -> None:
    found = []
    for name, address in addresses.items():
        page.goto(address)
        wait_until_drawn(page)
        page.add_style_tag(content="* { transition: none !important }")
        for scheme in SCHEMES:
            page.emulate_media(color_scheme=scheme)
            found += [f"{name}, {scheme}: {fault}" for fault in faults(page)]
    assert found == []


def faults(page: Page) -> Iterator[str]:
    """The rules that the current page breaks, each with the first elements that break it."""
    for violation in Axe().run(page).response["violations"]:
        if violation["impact"] in GRAVE:
            places = [" ".join(map(str, node["target"])) for node in violation["nodes"][:3]]
            yield f"{violation['id']} ({len(violation['nodes'])}): {'; '.join(places)}"
