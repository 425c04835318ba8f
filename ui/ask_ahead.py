"""What a page asks first is asked as soon as its address is: the browser loads its scripts meanwhile.

browser   |-- address --|-------- scripts --------|-- parts of the page, one by one --|
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
    """Between an application and its server. It delays nothing and changes no answer."""

    def __init__(self, app: ASGIApp, reads: Reads) -> None:
        self._app = app
        self._reads = reads
        self._workers = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="ahead")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == "/" and scope["method"] == "GET":
            state = parse_search(scope["query_string"].decode("latin-1")).state
            self._workers.submit(ask, state, self._reads)
        await self._app(scope, receive, send)


def ask(state: ViewState, reads: Reads) -> None:
    """Ask what the page of ``state`` will ask. What goes wrong is the page's to tell."""
    try:
        PAGES[state.view].ahead(state, reads)
    except (RankscopeError, StillWorking):
        pass
    except Exception:
        log.exception("%s could not be asked ahead", state.search())
