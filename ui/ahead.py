"""A page is drawn as soon as its address is known: the browser loads its scripts meanwhile.

browser   |-- address --|-------- scripts --------|-- page ----|
server                  |-- facts, sums, cells --|
                        |-- skeleton -- parts ---------|    the answer is there
"""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor

from starlette.types import ASGIApp, Receive, Scope, Send

from telemetry.errors import RankscopeError
from ui.background import StillWorking
from ui.first_answer import BegunPage, begin_page
from ui.pages import PAGES
from ui.reads import Reads
from ui.view_state import ViewState, parse_search

log = logging.getLogger(__name__)

AT_ONCE = 4
"""Addresses that are asked ahead for, and pages that are drawn ahead; others do it by themselves, in their turn."""
KEPT_S = 10.0
"""A page that is not asked for so long was not meant to be seen."""

Begun = asyncio.Task[BegunPage | None]


class Ahead:
    """Delays nothing and changes no answer. Only :meth:`ask` may be called outside the server's loop."""

    def __init__(self, reads: Reads) -> None:
        self._reads = reads
        self._workers = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="ahead")
        self._begun: dict[ViewState, Begun] = {}

    def ask(self, state: ViewState) -> None:
        """Ask in the background what the page of ``state`` will ask."""
        self._workers.submit(_ask, state, self._reads)

    def begin(self, state: ViewState) -> None:
        """Draw the page of ``state`` for whoever comes for it first."""
        if state in self._begun or len(self._begun) >= AT_ONCE:
            return
        self._begun[state] = asyncio.create_task(begin_page(state, self._reads))
        asyncio.get_running_loop().call_later(KEPT_S, self._begun.pop, state, None)

    def take(self, state: ViewState) -> Begun | None:
        """The page of ``state`` where it has been begun."""
        return self._begun.pop(state, None)


class BegunAhead:
    """Between an application and its server: begins where a page is fetched by its address."""

    def __init__(self, app: ASGIApp, ahead: Ahead) -> None:
        self._app = app
        self._ahead = ahead

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == "/" and scope["method"] == "GET":
            state = parse_search(scope["query_string"].decode("latin-1")).state
            self._ahead.ask(state)
            self._ahead.begin(state)
        await self._app(scope, receive, send)


def _ask(state: ViewState, reads: Reads) -> None:
    """What goes wrong is the page's to tell."""
    page = PAGES[state.view]
    try:
        if not page.needs_step or len(reads.facts(state).steps.step):
            page.ahead(state, reads)
    except (RankscopeError, StillWorking):
        pass
    except Exception:
        log.exception("%s could not be asked ahead", state.search())
