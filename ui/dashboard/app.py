"""The dashboard: a Dash application. The address of a page determines everything that the page shows.

address --> page: its skeleton and the parts that are ready --> the other parts, each with a request of its own
   ^                                    |
   +---- controls, clicks, links  <-----+   serving/live.py: when new data arrives, the live parts are drawn again

All scripts are served as one file and all styles as another, at addresses that contain a digest of the content, so that
a browser caches them forever. Requests that Dash cannot read are answered with 400, and errors in callbacks are
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
from telemetry.collector.serving import listen, serve
from telemetry.collector.settings import Live, ServerSettings
from telemetry.process.process_memory import limit_arenas
from telemetry.stores.interface import Reader
from ui.dashboard.data import Reads
from ui.dashboard.data.settings import ReadSettings
from ui.dashboard.pages.frame import layout
from ui.dashboard.pages.timeline.perfetto import perfetto_from_environment
from ui.dashboard.pages.timeline.trace_file import serve_traces
from ui.dashboard.records import price_from_environment
from ui.dashboard.serving import callbacks, choices
from ui.dashboard.serving.first_answer import Preload, PreloadRequests
from ui.dashboard.serving.live import push_updates
from ui.dashboard.serving.profile_file import serve_profiles
from ui.dashboard.serving.sql_route import serve_sql, sql_from_environment
from ui.dashboard.tools.routes import serve_tools

log = logging.getLogger(__name__)

CALLBACKS = "/_dash-update-component"


def log_error(error: Exception) -> None:
    """Log an error of a callback, for ``dash.Dash(on_error=...)``. The page stays unchanged."""
    log.error("a callback failed", exc_info=error)


class BadRequests:
    """Middleware that answers unreadable requests. Errors in callbacks do not reach it (:func:`log_error`)."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_refused = False

        async def sent(message: Message) -> None:
            nonlocal is_refused
            if message["type"] == "http.response.start" and message["status"] == 500:
                is_refused = True
                log.warning("a request of a page could not be read, or its answer could not be written")
                body = {"error": "The request could not be read or answered: reload the page"}
                await JSONResponse(body, status_code=400)(scope, receive, send)
            elif not is_refused:
                await send(message)

        is_callback = scope["type"] == "http" and scope["path"] == CALLBACKS
        await self._app(scope, receive, sent if is_callback else send)


FOLDER = Path(__file__).parent / "assets"
KEPT = "private, max-age=31536000, immutable"


class Joined(NamedTuple):
    """The content of all files of one kind."""

    address: str
    text: str
    media_type: str


def joined(suffix: str, media_type: str) -> Joined:
    """All files with this suffix. Files of a folder come before those in its subfolders."""
    files = sorted(FOLDER.rglob(f"*.{suffix}"), key=lambda file: (len(file.parts), file))
    text = "\n".join(file.read_text("utf-8") for file in files)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return Joined(f"/own-assets/{digest}.{suffix}", text, media_type)


SCRIPT, STYLE = joined("js", "text/javascript"), joined("css", "text/css")


def serve_own_assets(server: FastAPI) -> None:
    for joined_files in (SCRIPT, STYLE):
        server.add_route(joined_files.address, _answer(joined_files))


def _answer(joined_files: Joined) -> Callable[[Request], Awaitable[Response]]:
    async def answer(_: Request) -> Response:
        return Response(joined_files.text, media_type=joined_files.media_type, headers={"Cache-Control": KEPT})

    return answer


COMPRESSION = 2
"""Level of gzip. A higher level saves a tenth of the size and takes several times as long."""

dmc.pre_render_color_scheme()


def mount_dashboard(
    server: FastAPI,
    reader: Reader,
    live: Live = "interval",
    *,
    takes_orders: bool = False,
    takes_actions: bool = False,
) -> dash.Dash:
    """Serve the dashboard at ``/`` of a server. Call it last, because it takes every path without a route.

    It is a separate application, so that its middleware does not affect other routes. Its callbacks query in
    threads, so that a slow store does not block the server. ``live``: how pages get updates. ``takes_orders``,
    ``takes_actions``: whether the same server takes orders of profiles, and actions on findings.
    """
    sql = sql_from_environment()
    settings = ReadSettings(
        gpu_price=price_from_environment(),
        takes_orders=takes_orders,
        takes_actions=takes_actions,
        perfetto=perfetto_from_environment(),
        has_sql=sql is not None,
    )
    reads = Reads(reader, settings=settings)
    serve_traces(server, reader, reads)
    serve_profiles(server, reader)
    serve_tools(server, reads, reader)
    if sql is not None:
        serve_sql(server, sql)
    app = make_dashboard(reads, live)
    server.mount("/", app.server)
    return app


def make_dashboard(reads: Reads, live: Live = "interval") -> dash.Dash:
    """The Dash application. It serves everything that it needs itself."""
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
        on_error=log_error,
    )
    serve_own_assets(app.server)
    app.index_string = app.index_string.replace("<html>", '<html lang="en">')
    app.layout = layout(live)
    app.backend.websocket_capability = live == "websocket"  # otherwise every page opens a socket that is not served
    ahead = Preload(reads)
    app.server.add_middleware(BadRequests)
    app.server.add_middleware(PreloadRequests, ahead=ahead)
    app.server.add_middleware(GZipMiddleware, compresslevel=COMPRESSION)
    drawing: list[str | None] = []
    callbacks.keep_fresh(app, reads, drawing)
    if live == "websocket":
        push_updates(app, reads)
    callbacks.keep_frame(app, reads)
    callbacks.keep_page(app, reads, ahead, drawing)
    callbacks.keep_regions(app, reads)
    callbacks.keep_charts(app, reads)
    callbacks.keep_canvases(app, reads)
    callbacks.mark_suspects(app, reads)
    choices.keep_canvas_address(app)
    choices.keep_controls(app, reads)
    return app


def run_dashboard(reader: Reader, settings: ServerSettings, on_listening: Callable[[], None]) -> None:
    """Serve until SIGTERM, SIGHUP or Ctrl-C. Calls ``on_listening`` when the port is open.

    Raises:
        UsageError: the port is in use, or the address does not belong to this machine.
    """
    limit_arenas()
    with listen(settings.host, settings.port) as listener:
        on_listening()
        server = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
        guard(server, settings)
        mount_dashboard(server, reader, settings.live)
        serve(server, listener, settings)
