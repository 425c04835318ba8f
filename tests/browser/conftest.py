"""A real Chromium before a real dashboard over an embedded store."""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, expect, sync_playwright

from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from tests.memory_store import memory_store
from tests.parts import require
from tests.ui.served_dashboard import serving
from tests.ui.synthetic_run import SyntheticRun

FLAGS = ["--no-sandbox", "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
NUM_STEPS = 40
IDS_BY_KEY = re.compile(r"\{([\w,]+: Array\(\d+\)(, )?)+…?\}")
LOADED_MS = 30_000
"""Busy machines draw slowly."""
expect.set_options(timeout=LOADED_MS)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=require("chromium"), args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def store() -> Iterator[EmbeddedStore]:
    with memory_store() as store:
        yield store


@pytest.fixture(scope="module")
def run(store: EmbeddedStore) -> SyntheticRun:
    """An ended run of eight ranks in which rank 5 is slow."""
    run = SyntheticRun(run_id="slow-rank-5")
    run.introduce(store)
    run.advance(store, NUM_STEPS)
    run.mark(store, 3, "gc", "generation 2")
    run.beat(store, at_ns=run.now_ns, ended=True)
    return run


@pytest.fixture(scope="module")
def live_run(store: EmbeddedStore) -> SyntheticRun:
    """A healthy run that is still at work; tests advance it."""
    run = SyntheticRun(run_id="live", slow={}, started_ns=time.time_ns() - 60_000_000_000, seed=1)
    run.introduce(store)
    run.advance(store, 12)
    run.beat(store, at_ns=time.time_ns())
    return run


@pytest.fixture(scope="module")
def address(store: EmbeddedStore, run: SyntheticRun, live_run: SyntheticRun) -> Iterator[str]:
    with serving(StoreReader(store)) as address:
        yield address


class Complaints:
    """What a browser had to complain of, and whom it asked besides our server."""

    def __init__(self, page: Page) -> None:
        self.errors: list[str] = []
        self.strangers: list[str] = []
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", self._on_request)
        page.on("dialog", lambda dialog: self.errors.append(f"dialog: {dialog.message}"))

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type == "error" and not _is_of_a_part_taken_away(message.text):
            self.errors.append(message.text)

    def _on_request(self, request: Request) -> None:
        if not request.url.startswith(("http://127.0.0.1:", "data:", "blob:")):
            self.strangers.append(request.url)


def _is_of_a_part_taken_away(text: str) -> bool:
    """What Dash's renderer logs, and leaves at that, where somebody has gone to another page before all parts of this
    one had their turn to be asked for (it asks for twelve at once): a sentence, and before it the ids that it knows."""
    is_sentence = (
        "A nonexistent object was used in an `Output` of a Dash callback" in text and " with MATCH values " in text
    )
    return is_sentence or bool(IDS_BY_KEY.fullmatch(text))


@pytest.fixture(scope="session")
def context(browser: Browser) -> Iterator[BrowserContext]:
    """One for all pages: what it has fetched once, it need not fetch, and compile, again."""
    with browser.new_context(viewport={"width": 1440, "height": 1000}) as context:
        yield context


@contextmanager
def watched_page(context: BrowserContext) -> Iterator[Page]:
    """A page that remembers nothing.

    Raises:
        AssertionError: at the end, where the browser complained or asked a stranger.
    """
    page = context.new_page()
    page.set_default_timeout(LOADED_MS)
    complaints = Complaints(page)
    yield page
    if not page.is_closed() and page.url.startswith("http"):
        page.evaluate("localStorage.clear()")
    page.close()
    assert complaints.errors == []
    assert complaints.strangers == []


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """A page that remembers nothing; the test fails when the browser complains or asks a stranger."""
    with watched_page(context) as page:
        yield page
