"""A real Chromium that shows a real dashboard of an embedded store."""

import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    BrowserType,
    ConsoleMessage,
    Page,
    Request,
    ViewportSize,
    expect,
    sync_playwright,
)

from telemetry.collector.serving import listen
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from tests.memory_store import memory_store
from tests.parts import CHROMIUM, require
from tests.ui.served_dashboard import serving
from tests.ui.synthetic_run import SyntheticRun

FLAGS = [
    *("--no-sandbox", "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"),
    *("--disable-gpu-rasterization", "--disable-gpu-compositing"),  # without a GPU, these take processor time
]
SIZE: ViewportSize = {"width": 1440, "height": 1000}
NUM_STEPS = 40
IDS_BY_KEY = re.compile(r"\{([\w,]+: Array\(\d+\)(, )?)+…?\}")
LOADED_MS = 30_000
"""Busy machines draw slowly."""
expect.set_options(timeout=LOADED_MS)


@pytest.fixture(scope="session")
def chromium() -> Iterator[BrowserType]:
    with sync_playwright() as playwright:
        yield playwright.chromium


@pytest.fixture(scope="session")
def browser(chromium: BrowserType) -> Iterator[Browser]:
    """For contexts with other settings. ``context`` opens pages faster."""
    with chromium.launch(executable_path=require(CHROMIUM), args=FLAGS) as browser:
        yield browser


@pytest.fixture(scope="session")
def context(chromium: BrowserType, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserContext]:
    """One context for all pages. It keeps fetched and compiled scripts, because it has a profile on disk.

    Placeholders are not animated: without a GPU, each frame takes processor time that the page needs.
    """
    with chromium.launch_persistent_context(
        tmp_path_factory.mktemp("profile"),
        executable_path=require(CHROMIUM),
        args=FLAGS,
        viewport=SIZE,
        reduced_motion="reduce",
    ) as context:
        yield context


@pytest.fixture(scope="session")
def site() -> Iterator[socket.socket]:
    """The socket on which the dashboards of all test files listen, one after the other.

    They have one address. So the browser fetches and compiles their scripts only once.
    """
    with listen("127.0.0.1", 0) as site:
        yield site


@pytest.fixture(scope="session")
def second_site() -> Iterator[socket.socket]:
    """The socket of a dashboard in addition to that of ``address``."""
    with listen("127.0.0.1", 0) as site:
        yield site


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
    """A healthy run that still trains. Tests advance it."""
    run = SyntheticRun(run_id="live", slow={}, started_ns=time.time_ns() - 60_000_000_000, seed=1)
    run.introduce(store)
    run.advance(store, 12)
    run.beat(store, at_ns=time.time_ns())
    return run


@pytest.fixture(scope="module")
def address(store: EmbeddedStore, run: SyntheticRun, live_run: SyntheticRun, site: socket.socket) -> Iterator[str]:
    with serving(StoreReader(store), site) as address:
        yield address


class Complaints:
    """Errors in the browser, and requests to other servers than the dashboard."""

    def __init__(self, page: Page) -> None:
        self.errors: list[str] = []
        self.strangers: list[str] = []
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", self._on_request)
        page.on("dialog", lambda dialog: self.errors.append(f"dialog: {dialog.message}"))

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type == "error" and not is_of_a_removed_part(message.text):
            self.errors.append(message.text)

    def _on_request(self, request: Request) -> None:
        if not request.url.startswith(("http://127.0.0.1:", "data:", "blob:")):
            self.strangers.append(request.url)


def is_of_a_removed_part(text: str) -> bool:
    """Harmless messages of Dash's renderer: a sentence, and before it the ids that it knows.

    It logs them if the user opens another page before all parts of this page are requested (twelve at a time).
    """
    is_sentence = (
        "A nonexistent object was used in an `Output` of a Dash callback" in text and " with MATCH values " in text
    )
    return is_sentence or bool(IDS_BY_KEY.fullmatch(text))


@contextmanager
def watched_page(context: BrowserContext) -> Iterator[Page]:
    """A page with empty local storage.

    Raises:
        AssertionError: at the end, if the browser logged an error or sent a request to another server.
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


@contextmanager
def page_of_another(page: Page) -> Iterator[Page]:
    """The page of another user who has only the address. The local storage of ``page`` is cleared."""
    page.evaluate("localStorage.clear()")
    with page.context.new_page() as other:
        yield other


def log_in(context: BrowserContext, address: str, password: str) -> None:
    """Log in with a password. The browser then sends it for this address."""
    with context.new_page() as asking:
        answer = asking.goto(address.replace("//", f"//anyone:{password}@").rstrip("/") + "/_dash-layout")
    assert answer is not None
    assert answer.ok


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """A page with empty local storage. An error in the browser or a request to another server fails the test."""
    with watched_page(context) as page:
        yield page
