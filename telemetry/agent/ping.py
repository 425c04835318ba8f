"""How far this host's clock is off the collector's, as a sampler: a few pings, of which the quickest counts.

One look takes milliseconds, once in half a minute. A collector that is away, or that knows no such route, makes a look
empty.
"""

from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic_ns, time_ns

from telemetry.agent.host_watch import Paced
from telemetry.agent.samplers.interface import Look, Reading
from telemetry.errors import RankscopeError
from telemetry.host_metrics import Metric
from telemetry.wire.client import CollectorClient
from telemetry.wire.time_told import TimeTold

INTERVAL_S = 30.0
TRIES = 5
"""The quickest of several tells the most: what delays a ping delays one way more than the other."""

Ask = Callable[[], TimeTold]
"""Asks for the time. Raises RankscopeError or ValueError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ping:
    """One exchange."""

    collector: str
    offset_ns: int
    """The collector's clock less this host's."""
    round_trip_ns: int
    """Less what the collector took to answer."""


def ping(ask: Ask, *, wall: Callable[[], int] = time_ns, monotonic: Callable[[], int] = monotonic_ns) -> Ping:
    """One exchange. Durations are of the monotonic clock: a wall clock that is set meanwhile does no harm.

    Raises:
        RankscopeError: no answer.
        ValueError: one that makes no sense.
    """
    sent_ns, began_ns = wall(), monotonic()
    told = ask()
    took_ns = monotonic() - began_ns
    inside_ns = told.answered_ns - told.received_ns
    if inside_ns > took_ns:
        raise ValueError(f"answered {inside_ns} ns after it was asked, {took_ns} ns in all")
    return Ping(
        collector=told.collector,
        offset_ns=(told.received_ns + told.answered_ns - 2 * sent_ns - took_ns) // 2,
        round_trip_ns=took_ns - inside_ns,
    )


class ClockPing:
    """A sampler: see ``telemetry/agent/samplers/interface.py``."""

    name = "clock"

    def __init__(
        self,
        ask: Ask,
        close: Callable[[], None],
        *,
        tries: int = TRIES,
        wall: Callable[[], int] = time_ns,
        monotonic: Callable[[], int] = monotonic_ns,
    ) -> None:
        self._ask = ask
        self._close = close
        self._tries = tries
        self._wall, self._monotonic = wall, monotonic

    def look(self, at_ns: int) -> Look:
        pings = []
        for _ in range(self._tries):
            try:
                pings.append(ping(self._ask, wall=self._wall, monotonic=self._monotonic))
            except (RankscopeError, ValueError):
                break
        if not pings:
            return Look()
        best = min(pings, key=lambda one: one.round_trip_ns)
        values = {Metric.CLOCK_OFFSET_NS: best.offset_ns, Metric.CLOCK_ROUND_TRIP_NS: best.round_trip_ns}
        return Look(
            readings=tuple(
                Reading(metric=str(metric), device=best.collector, value=float(value), is_counter=False)
                for metric, value in values.items()
            )
        )

    def close(self) -> None:
        self._close()


def open_clock_ping(collector: str, token: str | None) -> Paced:
    """Pings of a collector, as often as is good.

    Raises:
        UsageError: it is no address of one.
    """
    client = CollectorClient(collector, token)
    return Paced(sampler=ClockPing(client.time, client.close), interval_s=INTERVAL_S, window_s=0)
