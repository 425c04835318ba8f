"""What a page asks first is asked as soon as its address is known: the browser loads its scripts meanwhile.

browser   |-- address --|-------- scripts --------|-- page ----|
server                  |-- facts, sums, cells --|    answers are there
"""

import logging
from concurrent.futures import ThreadPoolExecutor

from starlette.types import ASGIApp, Receive, Scope, Send

from telemetry.errors import RankscopeError
from ui.background import StillWorking
from ui.pages import PAGES
from ui.reads import Reads
from ui.view_state import ViewState, parse_search

log = logging.getLogger(__name__)

AT_ONCE = 4
"""Addresses that are asked ahead for; others wait for their turn, and their pages ask by themselves."""


class AskAhead:
    """Delays nothing and changes no answer."""

    def __init__(self, reads: Reads) -> None:
        self._reads = reads
        self._workers = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="ahead")

    def begin(self, state: ViewState) -> None:
        """Ask for the page of ``state`` in the background."""
        self._workers.submit(ask, state, self._reads)


class AskedAhead:
    """Between an application and its server: begins where a page is fetched by its address."""

    def __init__(self, app: ASGIApp, ahead: AskAhead) -> None:
        self._app = app
        self._ahead = ahead

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == "/" and scope["method"] == "GET":
            self._ahead.begin(parse_search(scope["query_string"].decode("latin-1")).state)
        await self._app(scope, receive, send)


def ask(state: ViewState, reads: Reads) -> None:
    """Ask what the page of ``state`` will ask. What goes wrong is the page's to tell."""
    page = PAGES[state.view]
    try:
        if not page.needs_step or len(reads.facts(state).steps.step):
            page.ahead(state, reads)
    except (RankscopeError, StillWorking):
        pass
    except Exception:
        log.exception("%s could not be asked ahead", state.search())
