"""What Dash cannot read is refused, and what goes wrong in a callback is written down: Dash itself answers both with
500, and writes nothing. An answer that it cannot write, which is rare, cannot be told from what it cannot read."""

import logging

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
                log.warning("a question of a page could not be read, or its answer not be written")
                said = {"error": "This question could not be read or answered: load the page anew"}
                await JSONResponse(said, status_code=400)(scope, receive, send)
            elif not is_refused:
                await send(message)

        is_callback = scope["type"] == "http" and scope["path"] == CALLBACKS
        await self._app(scope, receive, sent if is_callback else send)
