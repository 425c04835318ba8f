"""The dashboard: a Dash application. The address of a page determines everything that the page shows.

address --> page: its skeleton and the parts that are ready --> the other parts, each with a request of its own
   ^                                    |
   +---- controls, clicks, links  <-----+   live.py: has new data arrived? then the live parts are drawn again

All scripts are served as one file and all styles as another, at addresses that contain a digest of the content, so that
a browser caches them for good. Requests that Dash cannot read are answered with 400, and errors in callbacks are
logged: Dash itself answers both with 500 and logs nothing.
"""

import hashlib
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import dash
import dash_mantine_components as dmc
from fastapi import FastAPI
from fastapi.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from telemetry.collector.guard import guard
from telemetry.collector.server import listen, serve
from telemetry.collector.settings import Live, ServerSettings
from telemetry.process.process_memory import limit_arenas
from telemetry.stores.interface import Reader
from ui.dashboard import callbacks, canvas_callbacks
from ui.dashboard.ask_ahead import AskAhead, AskedAhead
from ui.dashboard.data import Reads
from ui.dashboard.gpu_price import price_from_environment
from ui.dashboard.live import tell_news
from ui.dashboard.pages.frame import layout
from ui.dashboard.pages.timeline.trace_file import give_traces

log = logging.getLogger(__name__)

CALLBACKS = "/_dash-update-component"


def write_down(error: Exception) -> None:
    """For ``dash.Dash(on_error=...)``: the page stays as it is."""
    log.error("a callback failed", exc_info=error)


class Refused:
    """Between an application and its server. Errors within callbacks never get here: :func:`write_down` has them."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_refused = False

        async def sent(message: Message) -> None:
            nonlocal is_refused
            if message["type"] == "http.response.start" and message["status"] == 500:
                is_refused = True
                log.warning("a request of a page could not be read, or its answer could not be written")
                said = {"error": "The request could not be read or answered: reload the page"}
                await JSONResponse(said, status_code=400)(scope, receive, send)
            elif not is_refused:
                await send(message)

        is_callback = scope["type"] == "http" and scope["path"] == CALLBACKS
        await self._app(scope, receive, sent if is_callback else send)


FOLDER = Path(__file__).parent / "assets"
KEPT = "private, max-age=31536000, immutable"


class Joined(NamedTuple):
    """Files of one kind, one after the other."""

    address: str
    text: str
    media_type: str


def joined(suffix: str, media_type: str) -> Joined:
    """All files whose names end so, those of a folder before those of the folders in it."""
    files = sorted(FOLDER.rglob(f"*.{suffix}"), key=lambda file: (len(file.parts), file))
    text = "\n".join(file.read_text("utf-8") for file in files)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return Joined(f"/own-assets/{digest}.{suffix}", text, media_type)


SCRIPT, STYLE = joined("js", "text/javascript"), joined("css", "text/css")


def serve_own_assets(server: FastAPI) -> None:
    """At the addresses of :data:`SCRIPT` and :data:`STYLE`."""
    for one in (SCRIPT, STYLE):
        server.add_route(one.address, _answer(one))


def _answer(one: Joined) -> Callable[[Request], Awaitable[Response]]:
    async def answer(_: Request) -> Response:
        return Response(one.text, media_type=one.media_type, headers={"Cache-Control": KEPT})

    return answer


COMPRESSION = 2
"""Of answers: a higher one makes them a tenth smaller and takes several times as long."""

dmc.pre_render_color_scheme()


def mount_dashboard(server: FastAPI, reader: Reader, live: Live = "interval") -> dash.Dash:
    """Serve the dashboard at ``/`` of a server. Call it last: it takes every path that has no route yet.

    It lives in an application of its own below the server's, so that its middleware touches no other route, and its
    callbacks query in threads, so that a slow store never holds up the server's loop. ``live``: how pages hear of news.
    """
    reads = Reads(reader, gpu_price=price_from_environment())
    give_traces(server, reader, reads)
    app = make_dashboard(reads, live)
    server.mount("/", app.server)
    return app


def make_dashboard(reads: Reads, live: Live = "interval") -> dash.Dash:
    """The Dash application over whoever answers. Everything it needs it serves itself."""
    app = dash.Dash(
        "ui.dashboard.app",
        server=FastAPI(docs_url=None, redoc_url=None, openapi_url=None),
        backend="fastapi",
        title="rankscope",
        update_title="",
        serve_locally=True,
        include_assets_files=False,
        external_scripts=[SCRIPT.address],
        external_stylesheets=[STYLE.address],
        suppress_callback_exceptions=True,
        enable_mcp=False,
        on_error=write_down,
    )
    serve_own_assets(app.server)
    app.index_string = app.index_string.replace("<html>", '<html lang="en">')
    app.layout = layout(live)
    app.backend.websocket_capability = live == "websocket"  # else every page calls for a socket that nobody serves
    ahead = AskAhead(reads)
    app.server.add_middleware(Refused)
    app.server.add_middleware(AskedAhead, ahead=ahead)
    app.server.add_middleware(GZipMiddleware, compresslevel=COMPRESSION)
    drawing: list[str | None] = []
    callbacks.keep_fresh(app, reads, drawing)
    if live == "websocket":
        tell_news(app, reads)
    callbacks.keep_frame(app, reads)
    callbacks.keep_page(app, reads, ahead, drawing)
    callbacks.keep_regions(app, reads)
    callbacks.keep_charts(app, reads)
    canvas_callbacks.keep_canvases(app, reads)
    canvas_callbacks.mark_suspects(app, reads)
    canvas_callbacks.follow_hands(app)
    callbacks.follow_hands(app, reads)
    return app


def run_dashboard(reader: Reader, settings: ServerSettings) -> None:
    """Serve until SIGTERM, SIGHUP or Ctrl-C.

    Raises:
        UsageError: the port is in use, or the address is none of this machine's.
    """
    limit_arenas()
    with listen(settings.host, settings.port) as listener:
        server = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
        guard(server, settings)
        mount_dashboard(server, reader, settings.live)
        serve(server, listener, settings)
