"""Everything a request passes before it comes to a route, of any server of ours.

connections.py      rates.py       origins.py        access.py       bodies.py
too many, too slow  429 too often  421, 403 foreign  401, 403 token  400, 408, 413, 429 body    -> routes

Who may do what with a server, where it has tokens.

    token    may                                                    asks for more: 403
    full     everything
    write    POST /v1/batches/TABLE, /v1/traces, /v1/metrics, /v1/logs
    read     everything else: questions, counters, the dashboard
    any      GET /v1/clock: agents measure how far their clock is off

Without a good token: 401, but for /healthz, which says nothing but whether the store answers.
"""

import base64
import binascii
import hmac
import re
from enum import Flag, auto

from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from telemetry.collector.answers import Refused, ignore, refuse, turn_away
from telemetry.collector.bodies import BodyBounds, BodyGate
from telemetry.collector.rates import RateGate
from telemetry.collector.settings import OriginGate, ServerSettings
from telemetry.credentials import Tokens

OPEN_PATHS = frozenset({"/healthz"})
CLOCK_PATH = "/v1/clock"
"""Agents ask there, who may do no more than write."""
WRITE_PATHS = re.compile(r"/v1/(batches/[^/]+|traces|metrics|logs)")


class Access(Flag):
    """What a request needs, and what a token grants."""

    READ = auto()
    WRITE = auto()


class TokenGate:
    """ASGI middleware: turns away whoever does not present the right token, by Bearer or as a Basic password.

    Browsers ask their user for a password by themselves, so the dashboard behind the same gate needs no login page.
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
        granted = self._granted(presented(Headers(scope=scope)))
        if _needed(scope) & granted:
            await self._app(scope, receive, send)
        else:
            await self._turn_away(granted, scope, receive, send)

    def _granted(self, token: bytes) -> Access:
        """All are compared, each in constant time: how long it takes says nothing."""
        granted = Access(0)
        for known, access in self._grants:
            granted |= access if hmac.compare_digest(token, known) else Access(0)
        return granted

    async def _turn_away(self, granted: Access, scope: Scope, receive: Receive, send: Send) -> None:
        if granted:
            may = "write" if granted is Access.WRITE else "read"
            hint = f"present the collector's {_variable(scope)}, or its RANKSCOPE_TOKEN"
            answer = refuse(403, f"this token may only {may}", hint)
        else:
            hint = f"set {_variable(scope)} or RANKSCOPE_TOKEN to the collector's, or send Authorization: Bearer TOKEN"
            challenge = 'Basic realm="rankscope"'
            answer = refuse(401, "no token, or a wrong one", hint, WWW_Authenticate=challenge)
        self._refused(answer.status_code)
        await turn_away(answer, scope, receive, send)


def _variable(scope: Scope) -> str:
    """What holds the least token that is enough."""
    return "RANKSCOPE_WRITE_TOKEN" if Access.WRITE in _needed(scope) else "RANKSCOPE_READ_TOKEN"


def presented(headers: Headers) -> bytes:
    """The token of a request; empty where there is none."""
    kind, _, value = headers.get("authorization", "").partition(" ")
    words = value.strip().encode("latin-1")
    match kind.lower():
        case "bearer":
            return words
        case "basic":
            return _basic_password(words)
        case _:
            return b""


def _basic_password(value: bytes) -> bytes:
    try:
        return base64.b64decode(value, validate=True).partition(b":")[2]
    except binascii.Error:
        return b""


def _needed(scope: Scope) -> Access:
    """One of these is enough. The path is the one that routes match, decoded: what looks like another is not it."""
    if scope["path"] == CLOCK_PATH:
        return Access.READ | Access.WRITE
    writes = scope["type"] == "http" and scope["method"] == "POST" and WRITE_PATHS.fullmatch(scope["path"])
    return Access.WRITE if writes else Access.READ


def guard(app: FastAPI, settings: ServerSettings, refused: Refused = ignore) -> None:
    """Put the gates before ``app``. What is added last is passed first."""
    bounds = BodyBounds(
        max_body_bytes=settings.max_body_bytes,
        max_total_bytes=settings.max_bodies_bytes,
        body_seconds=settings.body_seconds,
    )
    app.add_middleware(BodyGate, bounds=bounds, refused=refused)
    if settings.tokens:
        app.add_middleware(TokenGate, tokens=settings.tokens, refused=refused)
    # A name that resolves to loopback gets no further than a token; without one it would see everything.
    hosts = None if settings.tokens and not settings.allowed_hosts else settings.allowed_hosts
    app.add_middleware(OriginGate, hosts=hosts, refused=refused)
    if settings.requests_per_second:
        app.add_middleware(RateGate, per_second=settings.requests_per_second, refused=refused)
