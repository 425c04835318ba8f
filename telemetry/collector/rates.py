"""Rate limit for each client address: a bucket of requests that is refilled at a steady rate.

An empty bucket gives 429 with Retry-After. The bucket of an address that was idle for a while is full, and is removed.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address

from starlette.types import ASGIApp, Receive, Scope, Send

from telemetry.collector.answers import Refused, ignore, refuse, turn_away

BURST_S = 2.0
"""A full bucket holds what comes in so long."""
MAX_ADDRESSES = 65_536
"""The one that was quiet for longest goes first."""


class Buckets:
    """What each address has left. Not for several threads."""

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
    """ASGI middleware: so many requests a second for each address that connects; a proxy is one address."""

    def __init__(
        self,
        app: ASGIApp,
        per_second: float,
        refused: Refused = ignore,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._app = app
        self._buckets = Buckets(per_second)
        self._refused = refused
        self._clock_s = clock_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or self._buckets.take(network_of(scope.get("client")), self._clock_s()):
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
