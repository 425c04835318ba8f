"""Which samplers run on this host, how often, and in which threads.

    sampler --sample, every second--> thinning --> readings, events --host_reports.py--> host_samples, host_events

Each sampler has a separate thread, so a sampler that hangs in a driver does not delay the others.

One sampler measures the offset of this host's clock from the collector's clock. Every 30 s it sends five pings, and
uses the fastest. It returns nothing if the collector does not answer or does not support pings.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from time import monotonic_ns, time_ns

import pynvml

from telemetry.agent.samplers.host import HostSampler
from telemetry.agent.samplers.interface import Event, GoneError, Sample, Sampler, level
from telemetry.agent.samplers.network import open_network_samplers
from telemetry.agent.samplers.nvml import open_nvml_sampler
from telemetry.agent.settings import SamplerSettings
from telemetry.agent.thinning import HostSample, Thinning
from telemetry.errors import RankscopeError
from telemetry.host_metrics import WINDOW_S, Metric
from telemetry.printable import log
from telemetry.run_names import storable
from telemetry.wire.client import CollectorClient, CollectorTime

MAX_ROWS = 100_000
"""Waiting rows. If there are more, the oldest are dropped."""
MAX_FAILURES = 3
"""Consecutive failures after which a sampler is closed."""
JOIN_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Paced:
    """A sampler and its interval."""

    sampler: Sampler
    interval_s: float = 1.0
    window_s: float = WINDOW_S
    """Length of the windows over which readings are reduced. If 0, each reading is shipped unchanged."""


class HostWatch:
    """One thread for each sampler, from :meth:`start` to :meth:`stop`. Another thread takes the rows."""

    def __init__(self, samplers: Sequence[Paced], *, clock: Callable[[], int] = time.time_ns) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._samples: deque[HostSample] = deque(maxlen=MAX_ROWS)
        self._events: deque[Event] = deque(maxlen=MAX_ROWS)
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(paced,), name=f"rankscope-{paced.sampler.name}", daemon=True)
            for paced in samplers
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End the threads. Open windows are closed, so their rows can be taken. A thread that hangs is left. Safe to
        repeat."""
        self._stop.set()
        deadline = time.monotonic() + JOIN_S
        for thread in self._threads:
            if thread.is_alive():
                thread.join(max(0.0, deadline - time.monotonic()))

    def take(self) -> tuple[list[HostSample], list[Event]]:
        """The rows since the last call, the oldest first."""
        with self._lock:
            taken = list(self._samples), list(self._events)
            self._samples.clear()
            self._events.clear()
        return taken

    def _run(self, paced: Paced) -> None:
        sampler, thinning, failures = paced.sampler, Thinning(window_s=paced.window_s), 0
        next_s = time.monotonic()
        reason: str | None = None
        while not self._stop.is_set():
            at_ns = self._clock()
            try:
                sample = sampler.sample(at_ns)
                failures = 0
                self._put(thinning.add(at_ns, sample.readings), sample.events)
            except GoneError as error:
                reason = str(error)
                break
            except Exception as error:
                failures += 1
                if failures >= MAX_FAILURES:
                    reason = f"{type(error).__name__}: {error}"
                    break
            next_s = max(next_s + paced.interval_s, time.monotonic())
            self._stop.wait(next_s - time.monotonic())
        self._put(thinning.end(), ())
        if reason is not None:
            log(f"rankscope agent: {sampler.name} is no longer sampled: {reason}")
        with suppress(Exception):
            sampler.close()

    def _put(self, samples: Sequence[HostSample], events: Sequence[Event]) -> None:
        with self._lock:
            for sample in samples:
                if not (sample.device.isascii() and sample.metric.isascii()):
                    sample = replace(sample, device=storable(sample.device), metric=storable(sample.metric))
                self._samples.append(sample)
            self._events.extend(
                replace(event, device=storable(event.device), name=storable(event.name), text=storable(event.text))
                for event in events
            )


INTERVAL_S = 30.0
TRIES = 5
"""Pings of a sample. The fastest is the most exact: a delay affects one direction more than the other."""

Ask = Callable[[], CollectorTime]
"""Requests the time. Raises RankscopeError or ValueError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ping:
    """The result of one ping."""

    collector: str
    offset_ns: int
    """The collector's clock minus this host's."""
    round_trip_ns: int
    """Round trip without the time in the collector."""


def ping(ask: Ask, *, wall: Callable[[], int] = time_ns, monotonic: Callable[[], int] = monotonic_ns) -> Ping:
    """Ask the collector for its time once. Durations are monotonic, so setting the wall clock does not matter.

    Raises:
        RankscopeError: no answer.
        ValueError: an invalid answer.
    """
    sent_ns, began_ns = wall(), monotonic()
    clock = ask()
    took_ns = monotonic() - began_ns
    inside_ns = clock.answered_ns - clock.received_ns
    if inside_ns > took_ns:
        raise ValueError(f"the collector reports {inside_ns} ns for the answer, but the request took only {took_ns} ns")
    return Ping(
        collector=clock.collector,
        offset_ns=(clock.received_ns + clock.answered_ns - 2 * sent_ns - took_ns) // 2,
        round_trip_ns=took_ns - inside_ns,
    )


class ClockPing:
    """Samples the clock offset between this host and the collector."""

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

    def sample(self, at_ns: int) -> Sample:
        pings = []
        for _ in range(self._tries):
            try:
                pings.append(ping(self._ask, wall=self._wall, monotonic=self._monotonic))
            except (RankscopeError, ValueError):
                break
        if not pings:
            return Sample()
        best = min(pings, key=lambda answer: answer.round_trip_ns)
        offset = level(str(Metric.CLOCK_OFFSET_NS), best.offset_ns, best.collector)
        return Sample(readings=(offset, level(str(Metric.CLOCK_ROUND_TRIP_NS), best.round_trip_ns, best.collector)))

    def close(self) -> None:
        self._close()


def open_clock_ping(collector: str, token: str | None) -> Paced:
    """The sampler that pings a collector.

    Raises:
        UsageError: the address is invalid.
    """
    client = CollectorClient(collector, token)
    return Paced(sampler=ClockPing(client.time, client.close), interval_s=INTERVAL_S, window_s=0)


def open_samplers(settings: SamplerSettings, *, ranks: Callable[[], Mapping[int, int]]) -> list[Paced]:
    """The samplers with a data source on this host. ``ranks``: rank -> pid of the current training processes."""
    if not settings.interval_s:
        return []
    fine = _opened("traffic", lambda: open_network_samplers(fine=True)) if settings.network_s else []
    return [
        *(Paced(sampler=sampler, interval_s=settings.interval_s) for sampler in _found(ranks)),
        *(Paced(sampler=sampler, interval_s=settings.network_s, window_s=0) for sampler in fine),
    ]


def _found(ranks: Callable[[], Mapping[int, int]]) -> Iterator[Sampler]:
    yield from _opened("network", open_network_samplers)
    yield from _opened("host", lambda: [HostSampler(ranks=ranks)])
    yield from _opened("nvml", lambda: [sampler for sampler in (open_nvml_sampler(pynvml),) if sampler is not None])


def _opened(name: str, open_them: Callable[[], Iterable[Sampler]]) -> list[Sampler]:
    try:
        return list(open_them())
    except GoneError:
        return []
    except Exception as error:  # a failure of a driver or its library must not affect the ranks
        log(f"rankscope agent: {name} is not sampled: {type(error).__name__}: {error}")
        return []
