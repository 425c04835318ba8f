"""The dashboard: a Dash application whose address decides everything that is shown.

address --> page: its skeleton, and regions, charts and canvases that are ready --> those that are not, each on its own
   ^                                    |
   +---- controls, clicks, links  <-----+   asked or told (live.py): has anything arrived? then the live ones again
"""

import dash
import dash_mantine_components as dmc
from fastapi import FastAPI
from fastapi.middleware.gzip import GZipMiddleware

from telemetry.collector.settings import Live
from telemetry.stores.reader import Reader
from ui.dashboard import callbacks, canvas_callbacks
from ui.dashboard.ask_ahead import AskAhead, AskedAhead
from ui.dashboard.data import Reads
from ui.dashboard.gpu_price import price_from_environment
from ui.dashboard.live import tell_news
from ui.dashboard.own_assets import SCRIPT, STYLE, serve_own_assets
from ui.dashboard.pages.frame import layout
from ui.dashboard.refused import Refused, write_down
from ui.dashboard.trace_file import give_traces

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
