"""Scripts and styles that a browser need not ask for again: their address tells when they last changed."""

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

KEPT = "private, max-age=31536000, immutable"


class KeptAssets:
    """Between an application and its server. Without it a browser asks after each of them at every page."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 200:
                MutableHeaders(scope=message)["Cache-Control"] = KEPT
            await send(message)

        await self._app(scope, receive, sent if _is_dated(scope) else send)


def _is_dated(scope: Scope) -> bool:
    return scope["type"] == "http" and "/assets/" in scope["path"] and b"m=" in scope["query_string"]
