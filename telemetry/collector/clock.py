"""What time it is here: ``GET /v1/clock``, for agents that measure how far their host's clock is off.

    agent      t0 ------->                  -------> t3        offset = ((t1 - t0) + (t2 - t3)) / 2
    collector           t1 --- answers --- t2                  right within half of (t3 - t0) - (t2 - t1)

(NTP, RFC 5905, section 8.)
"""

import os
import socket
import time
from dataclasses import asdict

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from telemetry.wire.time_told import TimeTold

NAME = f"{socket.gethostname()}/{os.getpid()}"
"""Several collectors may answer at one address: each has a clock of its own."""


def make_clock_router() -> APIRouter:
    """Answers with a :class:`telemetry.wire.time_told.TimeTold` in JSON."""
    router = APIRouter()

    @router.get("/v1/clock")
    async def tell_time() -> JSONResponse:
        received_ns = time.time_ns()
        told = TimeTold(collector=NAME, received_ns=received_ns, answered_ns=max(received_ns, time.time_ns()))
        return JSONResponse(asdict(told))

    return router
