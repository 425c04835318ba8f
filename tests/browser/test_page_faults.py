"""The faults that tests/browser/page_faults.js finds in the layout of a page."""

import pytest
from playwright.sync_api import Page

from tests.browser.every_page import LAYOUT_FAULTS

pytestmark = pytest.mark.browser

FAULTS = {
    '<p style="height: 20px">above</p><p style="margin-top: -32px">below</p>': ['"above" overlaps "below"'],
    '<div class="box" style="width: 40px; overflow: hidden; white-space: nowrap">a long text</div>': [
        '"a long text" is clipped by box'
    ],
    '<div style="width: 40px; overflow: auto; white-space: nowrap">a long text</div>': [],
    '<div class="wide" style="width: 40px; overflow: auto"><div style="width: 72px">text</div></div>': [
        "wide hides 32 px on its right"
    ],
    '<svg width="30" height="20"><text y="15">a long text</text></svg>': ['"a long text" is clipped by svg'],
    "<svg height='40'><text y='15'>one</text><text y='20'>two</text></svg>": ['"one" overlaps "two"'],
    "<p>one</p><p>two <b>three</b></p>": [],
}


def test_clipped_and_overlapping_texts_are_found_and_others_are_not(page: Page) -> None:
    page.set_content("<main></main>")
    for html, expected in FAULTS.items():
        page.evaluate("html => { document.querySelector('main').innerHTML = html; }", html)
        found = page.evaluate(LAYOUT_FAULTS)
        assert found == expected, html
