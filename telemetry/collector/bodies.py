"""Bodies of requests: none too big, none too slow, and not too many at once.

    head says: longer than max_body_bytes          413, before a byte of it is read
    more bytes than that arrive                    413
    not there after body_seconds                   408, and the connection ends
    all bodies in memory exceed max_total_bytes    429, come back later
    two lengths, or a length that is none          400, and the connection ends

Bytes count from their arrival to the end of the request, so what waits for the store counts, too.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from telemetry.collector.answers import Refused, ignore, refuse

MALFORMED = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyBounds:
    """What bodies may take."""

    max_body_bytes: int
    max_total_bytes: int
    body_seconds: float


class BodyGate:
    """ASGI middleware: bounds on what is received, whoever reads it."""

    def __init__(self, app: ASGIApp, bounds: BodyBounds, refused: Refused = ignore) -> None:
        self._app = app
        self._bounds = bounds
        self._refused = refused
        self._total_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        declared = declared_length(scope["headers"])
        if declared == MALFORMED:
            await self.turn_away(scope, send, 400, "the length of the body is told in two ways, or wrongly")
        elif declared > self._bounds.max_body_bytes:
            await self.turn_away(scope, send, 413, self._too_big())
        else:
            await self._pass(scope, receive, send)

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = _Body(self, scope, receive, send, until=asyncio.get_running_loop().time() + self._bounds.body_seconds)
        try:
            await self._app(scope, body.receive, body.send)
        except Exception:
            # What a route makes of a body that broke off is no news.
            if not body.broken_off:
                raise
        finally:
            self._total_bytes -= body.size_bytes

    def take(self, size_bytes: int, body_bytes: int) -> int:
        """Count ``size_bytes`` more of a body that then has ``body_bytes``. The status to refuse it with, or 0."""
        self._total_bytes += size_bytes
        if body_bytes > self._bounds.max_body_bytes:
            return 413
        return 429 if self._total_bytes > self._bounds.max_total_bytes else 0

    async def turn_away(self, scope: Scope, send: Send, status: int, error: str = "") -> None:
        """Answer for the route."""
        words = {
            400: (error, "send either Content-Length, once, or Transfer-Encoding: chunked"),
            408: (f"the body took longer than {self._bounds.body_seconds:g} s", "send less at a time"),
            413: (self._too_big(), "send fewer rows at a time, or raise RANKSCOPE_MAX_BODY_BYTES"),
            429: ("too much waits to be stored", "send it again after Retry-After seconds"),
        }
        closing = {"Connection": "close"} if status in (400, 408) else {}
        self._refused(status)
        await refuse(status, *words[status], **closing)(scope, _nothing, send)

    def _too_big(self) -> str:
        return f"more than {self._bounds.max_body_bytes} bytes"


class BodyError(Exception):
    """This body is refused; the answer is on its way already."""


class _Body:
    """The body of one request as it comes in, and the answer to it."""

    def __init__(self, gate: BodyGate, scope: Scope, receive: Receive, send: Send, *, until: float) -> None:
        self.size_bytes = 0
        self.broken_off = False
        self._gate = gate
        self._scope = scope
        self._receive = receive
        self._send = send
        self._until = until
        self._whole = False
        self._answering = False

    async def receive(self) -> Message:
        if self._whole:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._until):
                message = await self._receive()
        except TimeoutError:
            await self._break_off(408)
        if message["type"] == "http.disconnect":
            self.broken_off = True
            return message
        arrived = len(message.get("body", b""))
        self.size_bytes += arrived
        if status := self._gate.take(arrived, self.size_bytes):
            await self._break_off(status)
        self._whole = not message.get("more_body", False)
        return message

    async def send(self, message: Message) -> None:
        if not self.broken_off:
            self._answering = True
            await self._send(message)

    async def _break_off(self, status: int) -> None:
        self.broken_off = True
        if not self._answering:
            await self._gate.turn_away(self._scope, self._send, status)
        raise BodyError(status)


def declared_length(headers: Iterable[tuple[bytes, bytes]]) -> int:
    """The length that the head tells, 0 where it tells none.

    A server and a proxy before it that take different ones of two lengths see different requests.
    """
    lengths = [value for name, value in headers if name == b"content-length"]
    chunked = any(name == b"transfer-encoding" for name, _ in headers)
    if not lengths:
        return 0
    if len(lengths) > 1 or chunked or not lengths[0].isdigit():
        return MALFORMED
    return int(lengths[0][:20])


async def _nothing() -> Message:
    return {"type": "http.disconnect"}
