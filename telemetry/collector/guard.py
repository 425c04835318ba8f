"""All checks that a request passes before it reaches a route, for the collector and the dashboard.

    connections.py      gates.py       gates.py          guard.py        guard.py
    too many, too slow  429 too often  421, 403 foreign  401, 403 token  400, 408, 413, 429 body    -> routes

Access, for a server with tokens:

    token    allows                                                 otherwise
    full     everything. POST /v1/profiles needs this token
    write    POST /v1/batches/TABLE, /v1/traces, /v1/metrics,            403
             /v1/logs, /v1/finding-actions, /v1/annotations
    read     everything else: queries, metrics, the dashboard            403
    any      GET /v1/clock: agents measure the offset of their clock

A request without a valid token gets 401, except for /healthz, which only says whether the store answers.

Bodies of requests:

    declared length above max_body_bytes           413, before any byte of it is read
    more bytes than that arrive                    413
    not complete after body_seconds                408, and the connection is closed
    all bodies in memory exceed max_bodies_bytes   429, retry later
    two lengths, or an invalid length              400, and the connection is closed

Bytes count from their arrival to the end of the request. So this includes bodies that wait for the store.
"""

import asyncio
import base64
import binascii
import hmac
import re
from collections.abc import Iterable
from contextlib import suppress
from enum import Flag, auto

from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from telemetry.collector.gates import OriginGate, RateGate, Refused, ignore, refuse, turn_away
from telemetry.collector.settings import ServerSettings
from telemetry.credentials import Tokens

MALFORMED = -1


class BodyGate:
    """ASGI middleware: limits the bytes that are received, on every route."""

    def __init__(self, app: ASGIApp, settings: ServerSettings, refused: Refused = ignore) -> None:
        self._app = app
        self._settings = settings
        self._refused = refused
        self._total_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        declared = declared_length(scope["headers"])
        if declared == MALFORMED:
            await self.turn_away(scope, receive, send, 400)
        elif declared > self._settings.max_body_bytes:
            await self.turn_away(scope, receive, send, 413)
        else:
            await self._pass(scope, receive, send)

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        until_s = asyncio.get_running_loop().time() + self._settings.body_seconds
        body = _Body(self, scope, receive, send, until_s=until_s)
        try:
            await self._app(scope, body.receive, body.send)
        except Exception:
            if not body.broken_off:  # an error of a route that got only a part of the body is expected
                raise
        finally:
            self._total_bytes -= body.size_bytes

    def take(self, size_bytes: int, body_bytes: int) -> int:
        """Count ``size_bytes`` more of a body that then has ``body_bytes``. Returns the status of a refusal, or 0."""
        self._total_bytes += size_bytes
        if body_bytes > self._settings.max_body_bytes:
            return 413
        return 429 if self._total_bytes > self._settings.max_bodies_bytes else 0

    async def turn_away(self, scope: Scope, receive: Receive, send: Send, status: int) -> None:
        """Answer instead of the route."""
        seconds, most = self._settings.body_seconds, self._settings.max_body_bytes
        refusals = {
            400: (
                "the length of the body is given twice, or is invalid",
                "send either Content-Length, once, or Transfer-Encoding: chunked",
            ),
            408: (f"the body took longer than {seconds:g} s", "send fewer bytes at a time"),
            413: (
                f"the body has more than {most} bytes",
                "send fewer rows at a time, or raise RANKSCOPE_MAX_BODY_BYTES",
            ),
            429: ("too many rows wait to be stored", "retry after Retry-After seconds"),
        }
        closing = {"Connection": "close"} if status in (400, 408) else {}
        self._refused(status)
        await refuse(status, *refusals[status], **closing)(scope, receive, send)


class BodyError(Exception):
    """The body of a request is refused, and the answer was sent."""


class _Body:
    """The body of one request while it arrives, and the answer to it."""

    def __init__(self, gate: BodyGate, scope: Scope, receive: Receive, send: Send, *, until_s: float) -> None:
        self.size_bytes = 0
        self.broken_off = False
        self._gate = gate
        self._scope, self._receive, self._send = scope, receive, send
        self._until_s = until_s
        self._whole = False
        self._answering = False

    async def receive(self) -> Message:
        if self._whole:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._until_s):
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
            await self._gate.turn_away(self._scope, self._receive, self._send, status)
        raise BodyError(status)


def declared_length(headers: Iterable[tuple[bytes, bytes]]) -> int:
    """The length in the head; 0 without a length; ``MALFORMED`` if it is invalid or there are several.

    A server and a proxy that read different lengths would see different requests.
    """
    lengths = [value for name, value in headers if name == b"content-length"]
    chunked = any(name == b"transfer-encoding" for name, _ in headers)
    if not lengths:
        return 0
    if len(lengths) > 1 or chunked or not lengths[0].isdigit():
        return MALFORMED
    return int(lengths[0][:20])


OPEN_PATHS = frozenset({"/healthz"})
ORDER_PATH = "/v1/profiles"
"""Path of an order. It acts on running ranks, so the tokens of agents and readers are not enough."""
CLOCK_PATH = "/v1/clock"
"""Used by agents, which may only write."""
WRITE_PATHS = re.compile(r"/v1/(batches/[^/]+|traces|metrics|logs|finding-actions|annotations)")


class Access(Flag):
    """A right that a request needs, or a token grants."""

    READ = auto()
    WRITE = auto()


class TokenGate:
    """ASGI middleware: rejects requests without the right token, as Bearer or as a Basic password.

    Browsers ask for a Basic password, so the dashboard needs no login page.
    """

    def __init__(self, app: ASGIApp, tokens: Tokens, refused: Refused = ignore) -> None:
        self._app = app
        self._refused = refused
        kinds = {tokens.full: Access.READ | Access.WRITE, tokens.write: Access.WRITE, tokens.read: Access.READ}
        self._grants = [(token.encode(), access) for token, access in kinds.items() if token]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        token, granted = presented(Headers(scope=scope)), Access(0)
        for known, access in self._grants:  # all of them, in constant time, so that the duration reveals nothing
            granted |= access if hmac.compare_digest(token, known) else Access(0)
        if _may(scope, granted):
            await self._app(scope, receive, send)
        else:
            await self._turn_away(granted, scope, receive, send)

    async def _turn_away(self, granted: Access, scope: Scope, receive: Receive, send: Send) -> None:
        if granted:
            may = "write" if granted is Access.WRITE else "read"
            hint = f"use the collector's {', or its '.join(_variables(scope))}"
            answer = refuse(403, f"this token may only {may}", hint)
        else:
            hint = f"set {' or '.join(_variables(scope))} to the collector's, or send Authorization: Bearer TOKEN"
            challenge = 'Basic realm="rankscope"'
            answer = refuse(401, "no token, or a wrong one", hint, WWW_Authenticate=challenge)
        self._refused(answer.status_code)
        await turn_away(answer, scope, receive, send)


def _is_order(scope: Scope) -> bool:
    return bool(scope["type"] == "http" and scope["method"] == "POST" and scope["path"] == ORDER_PATH)


def _may(scope: Scope, granted: Access) -> bool:
    """Whether a token with these rights is enough."""
    return granted == (Access.READ | Access.WRITE) if _is_order(scope) else bool(_needed(scope) & granted)


def _variables(scope: Scope) -> list[str]:
    """The variables of the tokens that are enough, the one with the fewest rights first."""
    if _is_order(scope):
        return ["RANKSCOPE_TOKEN"]
    return ["RANKSCOPE_WRITE_TOKEN" if Access.WRITE in _needed(scope) else "RANKSCOPE_READ_TOKEN", "RANKSCOPE_TOKEN"]


def presented(headers: Headers) -> bytes:
    """The token of a request; empty if there is none."""
    kind, _, value = headers.get("authorization", "").partition(" ")
    credentials = value.strip().encode("latin-1")
    match kind.lower():
        case "bearer":
            return credentials
        case "basic":
            with suppress(binascii.Error):
                return base64.b64decode(credentials, validate=True).partition(b":")[2]
    return b""


def _needed(scope: Scope) -> Access:
    """The rights for a request. One of them is enough. The path is decoded, as routes match it."""
    if scope["path"] == CLOCK_PATH:
        return Access.READ | Access.WRITE
    writes = scope["type"] == "http" and scope["method"] == "POST" and WRITE_PATHS.fullmatch(scope["path"])
    return Access.WRITE if writes else Access.READ


def guard(app: FastAPI, settings: ServerSettings, refused: Refused = ignore) -> None:
    """Put the gates before ``app``. A request passes the gate that is added last first."""
    app.add_middleware(BodyGate, settings=settings, refused=refused)
    if settings.tokens:
        app.add_middleware(TokenGate, tokens=settings.tokens, refused=refused)
    # With tokens, the token stops requests under a foreign name that resolves to loopback. Otherwise names are checked.
    hosts = None if settings.tokens and not settings.allowed_hosts else settings.allowed_hosts
    app.add_middleware(OriginGate, hosts=hosts, refused=refused)
    if settings.requests_per_second:
        app.add_middleware(RateGate, per_second=settings.requests_per_second, refused=refused)
