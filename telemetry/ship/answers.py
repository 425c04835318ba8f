"""How a server of ours says no: a status, the reason and what to do next, as JSON."""

from collections.abc import Callable

from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

RETRY_AFTER = {429: "1", 503: "2"}
Refused = Callable[[int], None]
"""Is told the status of each request that was turned away before it came to a route."""


def refuse(status: int, error: str, hint: str, **headers: str) -> JSONResponse:
    """``{"error", "hint"}``; 429 and 503 say when to come back."""
    later = {"Retry-After": RETRY_AFTER[status]} if status in RETRY_AFTER else {}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return JSONResponse({"error": error, "hint": hint}, status_code=status, headers={**later, **named})


async def turn_away(answer: JSONResponse, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request so; the handshake of a WebSocket is refused without words (403)."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
    else:
        await answer(scope, receive, send)


def ignore(_: int) -> None:
    """Nobody counts."""
