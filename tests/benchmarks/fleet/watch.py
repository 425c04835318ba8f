"""Watches a store and its collectors under load: memory, processor time, queue, and how late a page sees spans."""

import random
import re
import statistics
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import httpx
import psutil

from telemetry.errors import UnreachableError
from telemetry.stores.queries import Spans
from telemetry.wire.client import CollectorClient
from tests.benchmarks.fleet.traffic import RANKS_A_HOST, RUN, Plan, S

LOOK_S = 1.0
MIB = 2**20
_METRIC = re.compile(r'^(rankscope_\w+)(?:\{\w+="(.*)"\})? (\S+)$', re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """One look: seconds since the begin, memory and processor seconds by process, and what all collectors count."""

    at_s: float
    mib: Mapping[str, float]
    cpu_s: Mapping[str, float]
    stored: float
    """Spans."""
    queue_batches: float
    queue_mib: float


@dataclass(slots=True)
class Watch:
    """A thread that looks once a second, from :meth:`start` to :meth:`stop`, and a second one that asks as a page."""

    processes: Mapping[str, psutil.Process]
    urls: tuple[str, ...]
    plan: Plan
    sights: list[Sight] = field(default_factory=list)
    lags_s: list[float] = field(default_factory=list)
    """Age of the newest span of a rank in the answer to a query, once a second. Each time another rank. At least six
    steps, if none of the newest is stored."""
    queries_s: list[float] = field(default_factory=list)
    unanswered: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        self._threads = [threading.Thread(target=self._look_often), threading.Thread(target=self._ask_often)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _look_often(self) -> None:
        began_s = time.monotonic()
        while not self._stop.wait(LOOK_S):
            with suppress(httpx.HTTPError):
                self.sights.append(self.look(time.monotonic() - began_s))

    def look(self, at_s: float) -> Sight:
        counts = [counters(url) for url in self.urls]
        totals = {name: sum(each.get(name, 0.0) for each in counts) for name in ("stored", "batches", "bytes")}
        return Sight(
            at_s=at_s,
            mib={name: process.memory_info().rss / MIB for name, process in self.processes.items()},
            cpu_s={name: sum(process.cpu_times()[:2]) for name, process in self.processes.items()},
            stored=totals["stored"],
            queue_batches=totals["batches"],
            queue_mib=totals["bytes"] / MIB,
        )

    def _ask_often(self) -> None:
        with CollectorClient(self.urls[0]) as client:
            while not self._stop.wait(LOOK_S):
                try:
                    self._ask(client)
                except UnreachableError:
                    self.unanswered += 1

    def _ask(self, client: CollectorClient) -> None:
        """What the page of a rank asks for: its spans in the newest steps."""
        began_s, now_ns = time.monotonic(), time.time_ns()
        step = max(0, (now_ns - self.plan.first_ns) // self.plan.period_ns)
        rank = random.randrange(self.plan.num_hosts * RANKS_A_HOST)
        query = Spans(run_id=RUN, attempt=0, first_step=max(0, step - 5), last_step=step + 1, ranks=(rank,))
        rows = client.read(query)
        self.queries_s.append(time.monotonic() - began_s)
        if rows.num_rows:
            newest_ns = int((rows["start_ns"].to_numpy() + rows["duration_ns"].to_numpy()).max())
            self.lags_s.append((time.time_ns() - newest_ns) / S)
        elif self.lags_s:  # before the first span, no rank has sent yet
            self.lags_s.append(6 * self.plan.period_ns / S)


def counters(url: str) -> dict[str, float]:
    """Counters of a collector: spans stored, inserts of spans, batches and bytes that wait, and refusals."""
    named = {
        ("rankscope_rows_stored_total", "spans"): "stored",
        ("rankscope_inserts_total", "spans"): "inserts",
        ("rankscope_queue_batches", ""): "batches",
        ("rankscope_queue_bytes", ""): "bytes",
    }
    found = _METRIC.findall(httpx.get(f"{url}/metrics", timeout=30).text)
    return {named[name, label]: float(value) for name, label, value in found if (name, label) in named}


def part(sights: list[Sight], first: float, last: float) -> list[Sight]:
    """The looks between two shares of the time."""
    return sights[int(first * len(sights)) : max(1, int(last * len(sights)))]


def median_mib(sights: list[Sight], name: str) -> float:
    return statistics.median(sight.mib[name] for sight in sights)


def cores(sights: list[Sight], name: str) -> float:
    """Processor time of a process, as a number of cores."""
    first, last = sights[0], sights[-1]
    return (last.cpu_s[name] - first.cpu_s[name]) / (last.at_s - first.at_s)
