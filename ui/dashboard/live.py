"""Live updates of pages. With ``RANKSCOPE_LIVE=websocket`` the server sends them:

    page                     server, for each page, twice a second
      |-- follow me ------------>|
      |<-- your address? --------|
      |-- ?view=overview ------->|
      |<-- is its page up? ------|
      |-- yes ------------------>|  ui/dashboard/live.py, in a thread
      |<-- what you know? -------|
      |-- freshness ------------>|  if it differs: the new freshness, and whether the store answers
      |<-- set ------------------|

All pages of a browser share one socket; ``telemetry/collector/connections.py`` limits their number. A page without
a socket, because a proxy cuts it or too many are open, polls instead (``LOOK_EVERY_MS``).

The freshness of a page changes whenever its parts have something new to draw. It consists of texts: JavaScript cannot
hold integers beyond 2**53, such as times in nanoseconds.
"""

import asyncio
import hashlib
import json
from contextlib import suppress
from typing import Any

import dash
from dash import ctx, set_props
from dash.development.base_component import Component
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketDisconnect

from telemetry.errors import RankscopeError, UnknownRunError
from ui.dashboard.address import parse_search
from ui.dashboard.background import StillWorking
from ui.dashboard.data import Reads
from ui.dashboard.data.alerts import told_alerts
from ui.dashboard.data.fleet import agents_said
from ui.dashboard.data.whatif import look_for_whatif
from ui.dashboard.drawing import is_of
from ui.dashboard.pages.panels import problem
from ui.dashboard.pages.runs.listing import run_list
from ui.dashboard.pages.timeline.replay import look_for_ideal
from ui.dashboard.view_state import Colour, View, ViewState

SHOW_STALLS = (View.OVERVIEW, View.GRID, View.HANG)
SHOW_HOSTS = (View.GRID, View.FLEET)
SHOW_REPORTS = (View.OVERVIEW, View.GRID, View.HEAT_MAP, View.TIMELINE, View.FLEET)


def look(state: ViewState, reads: Reads) -> tuple[list[str], Component | None]:
    """What is stored by now, and what to say when nobody answers."""
    try:
        if state.view is View.RUNS:
            return [
                hashlib.blake2s(repr(run_list(reads, state.find, state.order)).encode(), digest_size=16).hexdigest()
            ], None
        if state.view is View.ALERTS:
            told = told_alerts(reads)
            return [str(told.heard_ns), str(told.is_silent(reads.now_ns()))], None
        run = reads.newest(state)
        seen: list[object] = [run.run_id, run.attempt, run.last_step, run.last_ns, run.state, run.heard.is_silent]
        if state.view in SHOW_STALLS:
            seen += [*reads.evidence_seen(run), _is_judged(state, reads)]
        if state.view in SHOW_REPORTS:
            seen.append(reads.reports.seen(run))
        if state.view is View.WHAT_IF or (state.view is View.GRID and state.colour is Colour.BLAME):
            seen += look_for_whatif(state, reads)
        if state.view is View.TIMELINE:
            seen += look_for_ideal(state, reads)
        if state.view in SHOW_HOSTS:
            seen.append(agents_said(reads, run))
        return [str(one) for one in seen], None
    except UnknownRunError as error:
        return [error.message], None
    except RankscopeError as error:
        return [error.message], problem(error)


def _is_judged(state: ViewState, reads: Reads) -> bool:
    try:
        reads.hang(reads.facts(state))
    except StillWorking:
        return False
    except RankscopeError:
        pass  # for the parts of the page to tell
    return True


OPENING_S = 2.0
"""A page that has just been opened asks by itself; it is told of what comes later."""
TELL_EVERY_S = 0.5
MAX_PAGES = 256
"""Pages told at once; others ask."""
GONE_S = 60.0
"""A page that does not answer for so long is no more: closing one does not close the socket that it shares."""


def tell_news(app: dash.Dash, reads: Reads) -> None:
    """Tell every page over its socket. It lasts until the page or the socket has gone."""
    room = asyncio.Semaphore(MAX_PAGES)

    async def follow() -> None:
        socket = ctx.websocket
        if socket is None or room.locked():  # None: the browser cannot share sockets, and asked by HTTP
            return
        async with room:
            with suppress(TimeoutError):
                await asyncio.sleep(OPENING_S)
                while True:
                    await _tell(socket, reads)
                    await asyncio.sleep(TELL_EVERY_S)

    app.callback(websocket=True, persistent=True)(follow)
    app.server.add_middleware(PlainMessages, follow=_name_of_follow(app))


async def _tell(socket: Any, reads: Reads) -> None:
    """One look. What the page knows is asked after it, as the page's own clock may have told it meanwhile.

    Raises:
        TimeoutError: the page has gone.
        WebsocketDisconnected: the socket has.
    """
    search = await socket.get_prop("url", "search", timeout=GONE_S)
    state = parse_search(search if isinstance(search, str) else "").state
    shown = await socket.get_prop("page", "data-drawn", timeout=GONE_S)
    if not is_of(shown if isinstance(shown, str) else None, state):
        return  # the page of this address is on its way, and brings what is known
    found, banner = await run_in_threadpool(look, state, reads)
    if found != await socket.get_prop("known", "data", timeout=GONE_S):
        set_props("connection", {"children": banner})
        set_props("known", {"data": found})
        set_props("freshness", {"data": found})


class PlainMessages:
    """Between an application and its server: of what a socket says only what pages say gets through, in our words.

    Anything else ends the socket: beyond here it would be taken on trust.
    """

    def __init__(self, app: ASGIApp, follow: str) -> None:
        self._app = app
        self._follow = follow

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "websocket":
            await self._app(scope, receive, send)
            return

        async def received() -> Message:
            message = await receive()
            if message["type"] != "websocket.receive":
                return message
            plain = self._plain(message.get("text"))
            if plain is None:
                await send({"type": "websocket.close", "code": 1008})
                return {"type": "websocket.disconnect", "code": 1008}
            return {"type": "websocket.receive", "text": json.dumps(plain)}

        with suppress(WebSocketDisconnect):  # it went before it was let in
            await self._app(scope, received, send)

    def _plain(self, text: str | None) -> dict[str, Any] | None:
        try:
            said = json.loads(text or "")
        except (ValueError, RecursionError):
            return None
        match said:
            case {"type": "heartbeat"}:
                return {"type": "heartbeat"}
            case {"type": "get_props_response", "requestId": str(name), "payload": dict(values)}:
                return {"type": "get_props_response", "requestId": name, "payload": values}
            case {"type": "callback_request", "requestId": str(name), "rendererId": str(page), "payload": dict(asked)}:
                if asked.get("output") == self._follow:
                    return {"type": "callback_request", "requestId": name, "rendererId": page} | {
                        "payload": {"output": self._follow, "outputs": [], "inputs": [], "changedPropIds": []}
                    }
        return None


def _name_of_follow(app: dash.Dash) -> str:
    return next(str(name) for name, made in app.callback_map.items() if made.get("websocket"))
