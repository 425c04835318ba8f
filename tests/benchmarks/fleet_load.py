"""A job of thousands of ranks: all agents send, and a page asks for the newest spans.

python -m tests.benchmarks.fleet_load [--ranks 12288] [--minutes 10] [--collectors 1] [--full-speed] [--json]

    processes with hundreds of agents --HTTP--> collectors --> Debian's ClickHouse server
             fleet/agents.py                        ^--- spans of the newest steps of a rank, once a second
                                                         fleet/watch.py

A host has eight ranks. A rank records 101 spans in a step of 6.36 s: 195,000 spans/s of 12,288 ranks. With
``--full-speed`` the job began an hour ago, so that agents have more to send than the collector takes.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass

import psutil

from telemetry.stores.open import open_store
from tests.benchmarks.figures import Figure, report
from tests.benchmarks.fleet.agents import Settings
from tests.benchmarks.fleet.poster import Told
from tests.benchmarks.fleet.processes import Agents, check_stored, collector
from tests.benchmarks.fleet.traffic import RANKS_A_HOST, Plan, S
from tests.benchmarks.fleet.watch import Watch, cores, counters, median_mib, part
from tests.benchmarks.made_spans import SPANS_A_STEP
from tests.clickhouse_server import running_server

NUM_RANKS = 12_288
MINUTES = 10.0
PAPER_RANKS, PAPER_RATE = 12_288, 195_000
PERIOD_NS = round(S * PAPER_RANKS * SPANS_A_STEP / PAPER_RATE)
NUM_PROCESSES = 3
INTERVAL_S = 1.0
"""The default of the agent."""
AHEAD_S = 10.0
"""Time to start the processes, before the first step."""
MAX_LAG_S = 10.0
SETTLING_LOOKS = 20
"""Looks of the page that are left out: agents announce their ranks, and the first of them send."""
MAX_CORES = 2 / 3
"""A third of a machine with two cores."""
MAX_GROWTH, SLACK_MIB = 0.05, 64.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The result of one load."""

    seconds: float
    told: Told
    watch: Watch
    inserts: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetLoad:
    """The benchmark."""

    num_ranks: int = NUM_RANKS
    seconds: float = MINUTES * 60
    num_collectors: int = 1
    interval_s: float = INTERVAL_S
    full_speed: bool = False
    title: str = "The agents of 12,288 ranks"
    command: str = "python -m tests.benchmarks.fleet_load"

    def run(self) -> list[Figure]:
        """Measure on this machine."""
        with running_server(in_memory=False) as server, ExitStack() as started:
            store_url = server.url("fleet")
            collectors = [started.enter_context(collector(store_url)) for _ in range(self.num_collectors)]
            processes = {f"collector {number}": process for number, (process, _) in enumerate(collectors, 1)}
            processes["server"] = psutil.Process(server.pid)
            load = self._loaded(processes, tuple(url for _, url in collectors))
            with closing(open_store(store_url)) as store:
                check_stored(store, load.told, self.num_ranks)
        return [*_figures(self, load)]

    def _loaded(self, processes: dict[str, psutil.Process], urls: tuple[str, ...]) -> Load:
        began_ns = time.time_ns() + round(AHEAD_S * S) - (3600 * S if self.full_speed else 0)
        plan = Plan(num_hosts=self.num_ranks // RANKS_A_HOST, first_ns=began_ns, period_ns=PERIOD_NS)
        watch = Watch(processes=processes, urls=urls, plan=plan)
        settings = Settings(urls=urls, first_host=0, num_hosts=plan.num_hosts, plan=plan, interval_s=self.interval_s)
        sending = Agents(settings)
        try:
            sending.wait_until_ready()
            sending.begin()
            watch.start()
            began_s = time.monotonic()
            time.sleep(self.seconds)
            seconds = time.monotonic() - began_s
            watch.stop()
            told = sending.stop()
        finally:
            watch.stop()
            sending.kill()
        inserts = sum(counters(url).get("inserts", 0.0) for url in urls)
        return Load(seconds=seconds, told=told, watch=watch, inserts=inserts)


def _figures(settings: FleetLoad, load: Load) -> Iterator[Figure]:
    told, watch = load.told, load.watch
    steady = part(watch.sights, 0.1, 1.0)
    rate = (steady[-1].stored - steady[0].stored) / (steady[-1].at_s - steady[0].at_s)
    requests = sum(told.requests.values())
    load_name = "full speed" if settings.full_speed else f"{PAPER_RATE * settings.num_ranks / PAPER_RANKS:,.0f} spans/s"
    yield Figure(
        name="spans stored per second", value=rate, unit="1/s",
        note=f"{settings.num_ranks:,} ranks, {settings.num_ranks // RANKS_A_HOST:,} agents, {load_name}, "
        f"{settings.num_collectors} collectors, {load.seconds:.0f} s; {told.sums.rows:,} spans, each stored once",
    )  # fmt: skip
    server_side = {name: cores(steady, name) for name in watch.processes}
    shares = ", ".join(f"{name} {used:.2f}" for name, used in server_side.items())
    yield Figure(
        name="processor time of collectors and server", value=sum(server_side.values()), unit="cores",
        bound=None if settings.full_speed else MAX_CORES,
        note=f"{shares}; agents {told.cpu_s / load.seconds:.2f}; a round of an agent began "
        f"{quantile(sorted(told.late_s), 0.9):.2f} s late (90th percentile)",
    )  # fmt: skip
    for name in watch.processes:
        early, late = median_mib(part(watch.sights, 0.25, 0.5), name), median_mib(part(watch.sights, 0.75, 1.0), name)
        yield Figure(
            name=f"memory of {name}, last quarter", value=late, unit="MiB", rival="second quarter", rival_value=early,
            bound=early * (1 + MAX_GROWTH) + SLACK_MIB, low=min(sight.mib[name] for sight in steady),
            high=max(sight.mib[name] for sight in steady), note="spread: smallest and largest",
        )  # fmt: skip
    yield from _lag_figures(watch, bound=None if settings.full_speed else MAX_LAG_S)
    batches = [sight.queue_batches for sight in steady]
    yield Figure(
        name="queue of the collectors", value=statistics.median(batches), unit="batches", high=max(batches),
        low=min(batches), note=f"at most {max(sight.queue_mib for sight in steady):.1f} MiB",
    )  # fmt: skip
    waits = sorted(told.waits_s)
    by_table = ", ".join(f"{table} {count / load.seconds:,.0f}" for table, count in told.requests.most_common())
    failures = ", ".join(f"{count} x {error!r}" for error, count in told.failures.most_common(3)) or "none"
    yield Figure(
        name="time of a request", value=1e3 * statistics.median(waits), unit="ms", low=1e3 * quantile(waits, 0.1),
        high=1e3 * quantile(waits, 0.9), note=f"{requests / load.seconds:,.0f} requests/s: {by_table}; "
        f"{load.inserts / load.seconds:.1f} inserts of spans/s; failures: {failures}",
    )  # fmt: skip


def _lag_figures(watch: Watch, *, bound: float | None) -> Iterator[Figure]:
    """How late a page sees spans. Without an answer that has new spans, the figure could not be measured."""
    lags, queries = sorted(watch.lags_s[SETTLING_LOOKS:]), sorted(watch.queries_s)
    if not lags:
        yield Figure(name="largest age of the newest span", value=None, unit="s", bound=bound, note="none is so new")
        return
    times = f"{len(queries)} queries of {statistics.median(queries):.2f} s, slowest {queries[-1]:.2f} s"
    yield Figure(
        name="age of the newest span on a page", value=statistics.median(lags), unit="s", low=quantile(lags, 0.1),
        high=quantile(lags, 0.9), note=times,
    )  # fmt: skip
    yield Figure(name="largest age of the newest span", value=lags[-1], unit="s", bound=bound)


def quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


BENCHMARK = FleetLoad()


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog=BENCHMARK.command, description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--ranks", type=int, default=NUM_RANKS)
    parser.add_argument("--minutes", type=float, default=MINUTES)
    parser.add_argument("--collectors", type=int, default=1)
    parser.add_argument("--interval", type=float, default=INTERVAL_S)
    parser.add_argument("--full-speed", action="store_true")
    given = parser.parse_args(arguments)
    chosen = FleetLoad(
        num_ranks=given.ranks,
        seconds=60 * given.minutes,
        num_collectors=given.collectors,
        interval_s=given.interval,
        full_speed=given.full_speed,
    )
    return report(chosen.title, chosen.run(), as_json=given.json)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
