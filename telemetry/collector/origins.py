"""Pages of other sites in the browser of somebody who may use the server.

A page can make its reader's browser call loopback, or any server that the browser has a password for. Two things give
it away: the name it calls by (its own, made to resolve to 127.0.0.1), and what the browser says about where it is from.

    evil.example -> resolves to 127.0.0.1 -> Host: evil.example:8719       421 where no token protects the server
    evil.example -> POST http://127.0.0.1:8719/  Sec-Fetch-Site: cross-site  403
    evil.example -> WebSocket ws://127.0.0.1:8719/  Origin: not Host         403
"""

from collections.abc import Iterable
from ipaddress import ip_address

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from telemetry.collector.answers import Refused, ignore, refuse, turn_away

READ_ONLY = ("GET", "HEAD", "OPTIONS")
FOREIGN = ("cross-site", "same-site")
"""``same-site`` is another port or name of the same domain: not this server."""


class OriginGate:
    """ASGI middleware: turns away what a foreign page sends.

    Args:
        hosts: names by which the server may be called, beside those of loopback. None: by any.
    """

    def __init__(self, app: ASGIApp, hosts: Iterable[str] | None, refused: Refused = ignore) -> None:
        self._app = app
        self._hosts = None if hosts is None else frozenset(host.lower() for host in hosts)
        self._refused = refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if not self._is_ours(headers.getlist("host")):
            hint = "call it by an address of loopback, or name it in RANKSCOPE_ALLOWED_HOSTS"
            status, error = 421, "this server is not known by that name"
        elif _is_foreign(scope, headers):
            status, error, hint = 403, "a page of another site may not ask for this", "use the dashboard's own address"
        else:
            await self._app(scope, receive, send)
            return
        self._refused(status)
        await turn_away(refuse(status, error, hint), scope, receive, send)

    def _is_ours(self, hosts: list[str]) -> bool:
        if self._hosts is None:
            return True
        name = without_port(hosts[0]) if len(hosts) == 1 else ""
        return is_loopback(name) or name.endswith(".localhost") or name in self._hosts


def _is_foreign(scope: Scope, headers: Headers) -> bool:
    """Reading is left to the browser, which shows a foreign page no answer; but what a WebSocket tells, it shows."""
    if scope["type"] == "websocket":
        return not _is_own(headers.get("origin", ""), headers.get("host", ""))
    return scope["method"] not in READ_ONLY and headers.get("sec-fetch-site", "") in FOREIGN


def _is_own(origin: str, host: str) -> bool:
    """Whether a page of ``origin``, which every browser tells, is one of the server that was called ``host``."""
    _, _, authority = origin.partition("://")
    return bool(authority) and authority.lower() == host.lower()


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches ``host``, an address or a name."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def without_port(host: str) -> str:
    """The name in a Host header: ``example:8719`` -> ``example``, ``[::1]:8719`` -> ``::1``."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower().removesuffix(".")
