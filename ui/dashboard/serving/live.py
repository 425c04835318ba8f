"""Live updates of pages. With ``RANKSCOPE_LIVE=websocket`` the server sends them:

    page                     server, for each page, twice a second
      |-- follow me ------------>|
      |<-- your address? --------|
      |-- ?view=overview ------->|
      |<-- is its page up? ------|
      |-- yes ------------------>|  ui/dashboard/serving/live.py, in a thread
      |<-- what you know? -------|
      |-- freshness ------------>|  if it differs: the new freshness, and whether the store answers
      |<-- set ------------------|

All pages of a browser share one socket; ``telemetry/collector/connections.py`` limits their number. A page without
a socket, because a proxy cuts it or too many are open, polls instead (``POLL_EVERY_MS``).

The freshness of a page changes whenever its parts have something new to draw. It consists of texts: JavaScript cannot
hold integers beyond 2**53, such as times in nanoseconds.
"""

import asyncio
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
from ui.dashboard.data import Reads
from ui.dashboard.data.annotations import newest_annotation
from ui.dashboard.pages import PAGES
from ui.dashboard.pages.panels import problem
from ui.dashboard.serving.drawing import is_of
from ui.dashboard.view_state import ViewState


def freshness(state: ViewState, reads: Reads) -> tuple[list[str], Component | None]:
    """The freshness of a page, and a message if the store does not answer."""
    page = PAGES[state.view]
    values: list[object] = []
    try:
        values += newest_annotation(reads)
        if page.needs_run:
            run = reads.newest(state)
            values += [run.run_id, run.attempt, run.last_step, run.last_ns, run.state, run.heard.is_silent]
        return [str(value) for value in (*values, *page.freshness(state, reads))], None
    except UnknownRunError as error:
        return [error.message], None
    except RankscopeError as error:
        return [error.message], problem(error)


OPENING_S = 2.0
"""A page that was just opened requests its parts. Updates start after this time."""
PUSH_EVERY_S = 0.5
MAX_PAGES = 256
"""Largest number of pages that are updated at the same time. Other pages poll."""
GONE_S = 60.0
"""A page that does not answer for this long is closed. Closing a page does not close its shared socket."""


def push_updates(app: dash.Dash, reads: Reads) -> None:
    """Send updates to every page over its socket, until the page or the socket is closed."""
    room = asyncio.Semaphore(MAX_PAGES)

    async def follow() -> None:
        socket = ctx.websocket
        if socket is None or room.locked():  # None: the browser cannot share sockets, and sent an HTTP request
            return
        async with room:
            with suppress(TimeoutError):
                await asyncio.sleep(OPENING_S)
                while True:
                    await _push(socket, reads)
                    await asyncio.sleep(PUSH_EVERY_S)

    app.callback(websocket=True, persistent=True)(follow)
    app.server.add_middleware(PlainMessages, follow=_name_of_follow(app))


async def _push(socket: Any, reads: Reads) -> None:
    """Send the freshness if it changed. The page may have polled meanwhile, so its own value is read last.

    Raises:
        TimeoutError: the page is closed.
        WebsocketDisconnected: the socket is closed.
    """
    search = await socket.get_prop("url", "search", timeout=GONE_S)
    state = parse_search(search if isinstance(search, str) else "").state
    shown = await socket.get_prop("page", "data-drawn", timeout=GONE_S)
    if not is_of(shown if isinstance(shown, str) else None, state):
        return  # the page of this address is being loaded, and includes its freshness
    found, banner = await run_in_threadpool(freshness, state, reads)
    if found != await socket.get_prop("known", "data", timeout=GONE_S):
        set_props("connection", {"children": banner})
        set_props("known", {"data": found})
        set_props("freshness", {"data": found})


class PlainMessages:
    """Middleware that rebuilds the messages of a socket, and passes only those that pages send.

    Any other message closes the socket, because the application does not check messages.
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

        with suppress(WebSocketDisconnect):  # closed before it was accepted
            await self._app(scope, received, send)

    def _plain(self, text: str | None) -> dict[str, Any] | None:
        try:
            sent = json.loads(text or "")
        except (ValueError, RecursionError):
            return None
        match sent:
            case {"type": "heartbeat"}:
                return {"type": "heartbeat"}
            case {"type": "get_props_response", "requestId": str(name), "payload": dict(values)}:
                return {"type": "get_props_response", "requestId": name, "payload": values}
            case {
                "type": "callback_request",
                "requestId": str(name),
                "rendererId": str(page),
                "payload": dict(request),
            }:
                if request.get("output") == self._follow:
                    return {"type": "callback_request", "requestId": name, "rendererId": page} | {
                        "payload": {"output": self._follow, "outputs": [], "inputs": [], "changedPropIds": []}
                    }
        return None


def _name_of_follow(app: dash.Dash) -> str:
    return next(str(name) for name, made in app.callback_map.items() if made.get("websocket"))
