"""Error responses of the collector and the dashboard: a status, the reason and a hint, as JSON."""

from collections.abc import Callable, Mapping

from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

RETRY_AFTER = {429: "1", 503: "2"}
Refused = Callable[[int], None]
"""Receives the status of each request that is rejected before it reaches a route."""


def refuse(
    status: int, error: str, hint: str, stored: Mapping[str, int] | None = None, /, **headers: str
) -> JSONResponse:
    """``{"error", "hint"}``, with ``stored`` if given; 429 and 503 contain Retry-After."""
    later = {"Retry-After": RETRY_AFTER[status]} if status in RETRY_AFTER else {}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    more = {} if stored is None else {"stored": dict(stored)}
    return JSONResponse({"error": error, "hint": hint, **more}, status_code=status, headers={**later, **named})


async def turn_away(answer: JSONResponse, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request with this error; the handshake of a WebSocket is refused with an empty 403."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
    else:
        await answer(scope, receive, send)


def ignore(_: int) -> None:
    """Counts nothing."""
