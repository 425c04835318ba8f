"""Who may talk to the collector, where it has a token."""

import base64
import binascii
import hmac

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

OPEN_PATHS = frozenset({"/healthz"})


class TokenGate:
    """ASGI middleware: 401 for whoever does not present the token, by Bearer or as a Basic password.

    Browsers ask their user for a password by themselves, so the dashboard behind the same gate needs no login page.
    """

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or scope["path"] in OPEN_PATHS or self._knows(Headers(scope=scope)):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            refusal = JSONResponse(
                {
                    "error": "no token, or a wrong one",
                    "hint": "set RANKSCOPE_TOKEN to the collector's, or send Authorization: Bearer",
                },
                status_code=401,
                headers={"WWW-Authenticate": 'Basic realm="rankscope"'},
            )
            await refusal(scope, receive, send)

    def _knows(self, headers: Headers) -> bool:
        kind, _, value = headers.get("authorization", "").partition(" ")
        presented = value.strip().encode()
        if kind.lower() == "basic":
            presented = _basic_password(presented)
        return kind.lower() in ("bearer", "basic") and hmac.compare_digest(presented, self._token)


def _basic_password(value: bytes) -> bytes:
    try:
        return base64.b64decode(value, validate=True).partition(b":")[2]
    except binascii.Error:
        return b""
