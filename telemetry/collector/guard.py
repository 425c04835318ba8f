"""Everything a request passes before it comes to a route, of any server of ours.

connections.py      rates.py       origins.py        access.py       bodies.py
too many, too slow  429 too often  421, 403 foreign  401, 403 token  400, 408, 413, 429 body    -> routes
"""

from fastapi import FastAPI

from telemetry.collector.access import TokenGate
from telemetry.collector.answers import Refused, ignore
from telemetry.collector.bodies import BodyBounds, BodyGate
from telemetry.collector.origins import OriginGate
from telemetry.collector.rates import RateGate
from telemetry.collector.settings import ServerSettings


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
