"""No page has a fault at any width, light and dark: clipped or overlapping text, bad contrast, a console message."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page

from tests.browser.every_page import views_of_pages, walk

pytestmark = [pytest.mark.browser, pytest.mark.long, pytest.mark.timeout(2400)]


@pytest.fixture(scope="module")
def addresses() -> Iterator[dict[str, str]]:
    with views_of_pages() as addresses:
        yield addresses


def test_no_page_has_a_fault_at_any_width_in_light_or_dark_colours(page: Page, addresses: dict[str, str]) -> None:
    found = [f"{shown}: {fault}" for shown, faults in walk(page, addresses) for fault in faults]
    assert found == []
