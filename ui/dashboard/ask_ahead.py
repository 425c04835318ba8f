"""Load the data of a page as soon as its address is known, while the browser still loads the scripts.

browser   |-- address --|-------- scripts --------|-- page ----|
server                  |-- facts, sums, cells --|    answers are cached

For a page with figures, a header makes the browser load plotly at the same time.
"""

import logging
import threading
from concurrent.futures import ThreadPoolExecutor

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from telemetry.errors import RankscopeError
from ui.dashboard.address import parse_search
from ui.dashboard.background import StillWorking
from ui.dashboard.data import Reads
from ui.dashboard.pages import PAGES
from ui.dashboard.view_state import ViewState

log = logging.getLogger(__name__)

PLOTLY = "</_dash-component-suites/plotly/package_data/plotly.min.js>; rel=preload; as=script"
"""What Dash loads once a figure is to be drawn, as a header names it."""
AT_ONCE = 4
"""Addresses that are asked ahead for; pages of others ask by themselves, so that none waits behind a crowd of them."""


class AskAhead:
    """Delays nothing and changes no answer."""

    def __init__(self, reads: Reads) -> None:
        self._reads = reads
        self._workers = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="ahead")
        self._room = threading.Semaphore(AT_ONCE)

    def begin(self, state: ViewState) -> None:
        """Ask for the page of ``state`` in the background, where there is room for it."""
        if self._room.acquire(blocking=False):
            self._workers.submit(self._ask, state)

    def _ask(self, state: ViewState) -> None:
        try:
            ask(state, self._reads)
        finally:
            self._room.release()


class AskedAhead:
    """Between an application and its server: begins where a page is fetched by its address."""

    def __init__(self, app: ASGIApp, ahead: AskAhead) -> None:
        self._app = app
        self._ahead = ahead

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != "/" or scope["method"] != "GET":
            return await self._app(scope, receive, send)
        state = parse_search(scope["query_string"].decode("latin-1")).state
        self._ahead.begin(state)

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["Link"] = PLOTLY
            await send(message)

        return await self._app(scope, receive, sent if PAGES[state.view].charts else send)


def ask(state: ViewState, reads: Reads) -> None:
    """Ask what the page of ``state`` will ask. What goes wrong is the page's to tell."""
    page = PAGES[state.view]
    try:
        if not page.needs_step or len(reads.facts(state).steps.step):
            page.ahead(state, reads)
    except (RankscopeError, StillWorking):
        pass
    except Exception:
        log.exception("data of %s could not be loaded in advance", state.search())
