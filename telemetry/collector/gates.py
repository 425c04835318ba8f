"""Two gates of a server, for the origin of requests and for their rate, and the error responses of all gates.

``OriginGate`` rejects requests that pages of other sites send from a user's browser. Such a page can make the browser
call loopback, or any server for which the browser has a password. Two things identify it: the host name in the request
(its own name, made to resolve to 127.0.0.1), and the headers in which the browser reports the origin:

    evil.example -> resolves to 127.0.0.1 -> Host: evil.example:8719       421 if no token protects the server
    evil.example -> POST http://127.0.0.1:8719/  Sec-Fetch-Site: cross-site  403
    evil.example -> WebSocket ws://127.0.0.1:8719/  Origin: not Host         403

``RateGate`` limits the requests of each client address: a bucket of requests is refilled at a steady rate. An empty
bucket gives 429 with Retry-After.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from ipaddress import IPv6Address, ip_address

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from telemetry.stores.address import is_loopback

RETRY_AFTER = {429: "1", 503: "2"}
READ_ONLY = ("GET", "HEAD", "OPTIONS")
FOREIGN = ("cross-site", "same-site")
"""Values of Sec-Fetch-Site that are rejected. ``same-site`` is another port or name of the domain: not this server."""
BURST_S = 2.0
"""A full bucket holds the requests of this time."""
MAX_ADDRESSES = 65_536
"""If there are more, the bucket that was idle for longest is removed."""
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


class OriginGate:
    """ASGI middleware: rejects requests of foreign pages.

    Args:
        hosts: accepted host names, besides those of loopback. None accepts every name.
    """

    def __init__(self, app: ASGIApp, hosts: Iterable[str] | None, refused: Refused = ignore) -> None:
        self._app = app
        self._hosts = None if hosts is None else frozenset(host.lower() for host in hosts)
        self._refused = refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope) if scope["type"] != "lifespan" else None
        if headers is not None and not self._is_ours(headers.getlist("host")):
            hint = "use a loopback address, or add the name to RANKSCOPE_ALLOWED_HOSTS"
            answer = refuse(421, "this server does not accept that host name", hint)
        elif headers is not None and _is_foreign(scope, headers):
            answer = refuse(403, "pages of other sites may not request this", "use the dashboard's own address")
        else:
            await self._app(scope, receive, send)
            return
        self._refused(answer.status_code)
        await turn_away(answer, scope, receive, send)

    def _is_ours(self, hosts: list[str]) -> bool:
        if self._hosts is None:
            return True
        name = without_port(hosts[0]) if len(hosts) == 1 else ""
        return is_loopback(name) or name.endswith(".localhost") or name in self._hosts


def _is_foreign(scope: Scope, headers: Headers) -> bool:
    """Whether a foreign page sent a request that must be rejected. Reads are accepted: a browser hides their response
    from a foreign page. It does not hide the messages of a WebSocket."""
    if scope["type"] != "websocket":
        return scope["method"] not in READ_ONLY and headers.get("sec-fetch-site", "") in FOREIGN
    own_host = headers.get("origin", "").partition("://")[2].lower()
    return not own_host or own_host != headers.get("host", "").lower()


def without_port(host: str) -> str:
    """The name in a Host header: ``example:8719`` -> ``example``, ``[::1]:8719`` -> ``::1``."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower().removesuffix(".")


class Buckets:
    """The remaining requests of each address. For one thread."""

    def __init__(self, per_second: float, *, max_addresses: int = MAX_ADDRESSES) -> None:
        self._per_second = per_second
        self._most = max(1.0, per_second * BURST_S)
        self._max_addresses = max_addresses
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, address: str, now_s: float) -> bool:
        """Whether ``address`` may send another request."""
        left, at_s = self._left.pop(address, (self._most, now_s))
        left = min(self._most, left + (now_s - at_s) * self._per_second)
        may = left >= 1
        self._left[address] = (left - may, now_s)
        if len(self._left) > self._max_addresses:
            self._left.popitem(last=False)
        return may

    def __len__(self) -> int:
        return len(self._left)


class RateGate:
    """ASGI middleware: limits the requests a second of each address that connects; a proxy is one address."""

    def __init__(self, app: ASGIApp, per_second: float, refused: Refused = ignore) -> None:
        self._app = app
        self._buckets = Buckets(per_second)
        self._refused = refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or self._buckets.take(network_of(scope.get("client")), time.monotonic()):
            await self._app(scope, receive, send)
            return
        self._refused(429)
        hint = "retry after Retry-After seconds, or raise RANKSCOPE_REQUESTS_PER_SECOND"
        await turn_away(refuse(429, "too many requests from this address", hint), scope, receive, send)


def network_of(client: tuple[str, int] | None) -> str:
    """The key of a bucket: an IPv4 address, or the /64 of an IPv6 host."""
    if client is None:
        return ""
    try:
        address = ip_address(client[0].partition("%")[0])
    except ValueError:
        return client[0]
    return str(address) if not isinstance(address, IPv6Address) else address.packed[:8].hex()
