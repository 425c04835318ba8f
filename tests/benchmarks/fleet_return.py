"""All agents of a large job come back after an hour without a collector.

python -m tests.benchmarks.fleet_return [--ranks 12288] [--share 0.05] [--json]

    rank files of an hour  -->  agents that find no collector, for 40 s  -->  a collector starts  -->  all is stored

The hour has a part (``--share``) of the usual rate, in longer steps. At the full rate, 12,288 ranks record 700 million
spans in an hour: 45 GB of rank files. The ranks still run, so that heartbeats show when the run is live again.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import psutil

from telemetry.stores.open import open_store
from tests.benchmarks.figures import Figure, report
from tests.benchmarks.fleet.agents import Settings
from tests.benchmarks.fleet.poster import Told
from tests.benchmarks.fleet.processes import Agents, check_stored, collector
from tests.benchmarks.fleet.traffic import RANKS_A_HOST, Plan, S
from tests.benchmarks.fleet.watch import Watch
from tests.benchmarks.fleet_load import INTERVAL_S, NUM_RANKS, PERIOD_NS
from tests.benchmarks.made_spans import SPANS_A_STEP
from tests.clickhouse_server import running_server
from tests.deadline import until
from tests.integration.processes import free_port

SHARE = 0.05
HOUR_NS = 3600 * S
OFFLINE_S = 40.0
"""Agents then wait for 10 to 20 s between two attempts, as after an hour."""
LONGEST_S = 3600.0
MAX_LIVE_S = 40.0
MAX_FIRST_SHARE = 0.2
"""Largest part of the agents whose first request is answered within the same second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """What happened after the collector was there, at ``up_s``, wall clock."""

    up_s: float
    seconds: float
    told: Told
    watch: Watch


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetReturn:
    """The benchmark."""

    num_ranks: int = NUM_RANKS
    share: float = SHARE
    title: str = "The agents of 12,288 ranks return after an hour without a collector"
    command: str = "python -m tests.benchmarks.fleet_return"

    @property
    def plan(self) -> Plan:
        """A job that began an hour ago."""
        return Plan(
            num_hosts=self.num_ranks // RANKS_A_HOST,
            first_ns=time.time_ns() - HOUR_NS,
            period_ns=round(PERIOD_NS / self.share),
        )

    def run(self) -> list[Figure]:
        """Measure on this machine."""
        with running_server(in_memory=False) as server, tempfile.TemporaryDirectory(prefix="fleet-") as spool:
            store_url = server.url("fleet")
            with closing(open_store(store_url)) as store:
                returned = self._returned(store_url, psutil.Process(server.pid), Path(spool))
                check_stored(store, returned.told, self.num_ranks)
        return [*_figures(self, returned)]

    def _returned(self, store_url: str, server: psutil.Process, spool: Path) -> Returned:
        plan, port = self.plan, free_port()
        num_steps = HOUR_NS // plan.period_ns
        num_spans = num_steps * SPANS_A_STEP * self.num_ranks
        urls = (f"http://127.0.0.1:{port}",)
        sending = Agents(
            Settings(
                urls=urls, first_host=0, num_hosts=plan.num_hosts, plan=plan, interval_s=INTERVAL_S, spool=str(spool),
                num_steps=num_steps,
            )
        )  # fmt: skip
        try:
            sending.wait_until_ready()
            sending.begin()
            time.sleep(OFFLINE_S)
            with collector(store_url, port) as (process, _):
                up_s = time.time()
                watch = Watch(processes={"collector": process, "server": server}, urls=urls, plan=plan)
                watch.start()
                try:
                    until(
                        lambda: watch.sights and watch.sights[-1].stored >= num_spans,
                        seconds=LONGEST_S, what="all spans in the store",
                    )  # fmt: skip
                finally:
                    watch.stop()
                seconds = time.time() - up_s
                told = sending.stop()
        finally:
            sending.kill()
        assert not told.unfinished, f"{told.unfinished} agents did not acknowledge everything"
        return Returned(up_s=up_s, seconds=seconds, told=told, watch=watch)


def _figures(settings: FleetReturn, returned: Returned) -> Iterator[Figure]:
    told, sights = returned.told, returned.watch.sights
    num_agents = settings.num_ranks // RANKS_A_HOST
    yield Figure(
        name="time until all is stored", value=returned.seconds, unit="s",
        note=f"{settings.num_ranks:,} ranks, {num_agents:,} agents, an hour at {settings.share:g} of the rate; "
        f"{told.sums.rows:,} spans, each stored once; {told.sums.rows / returned.seconds:,.0f} spans/s",
    )  # fmt: skip
    seconds = Counter(int(at_s - returned.up_s) for at_s in told.firsts_s)
    yield Figure(
        name="agents whose first request is stored in the same second", value=max(seconds.values()) / num_agents,
        unit="of all", bound=MAX_FIRST_SHARE, note=f"the first {min(seconds)} s, the last {max(seconds)} s later",
    )  # fmt: skip
    beats_s = sorted(at_s - returned.up_s for at_s in told.beats_s)
    yield Figure(
        name="time until each rank has a heartbeat", value=beats_s[-1], unit="s", bound=MAX_LIVE_S,
        low=beats_s[len(beats_s) // 10], high=beats_s[9 * len(beats_s) // 10],
        note=f"{len(beats_s):,} agents; the newest spans of an agent are stored last, in the order of their numbers",
    )  # fmt: skip
    for name in ("collector", "server"):
        values = [sight.mib[name] for sight in sights]
        yield Figure(
            name=f"largest memory of the {name}", value=max(values), unit="MiB", note=f"{values[-1]:,.0f} at the end"
        )
    failures = ", ".join(f"{count:,} x {error!r}" for error, count in told.failures.most_common(4))
    yield Figure(
        name="largest queue", value=max(sight.queue_mib for sight in sights), unit="MiB",
        note=f"{sum(told.requests.values()):,} requests; not stored: {failures}",
    )  # fmt: skip


BENCHMARK = FleetReturn()


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog=BENCHMARK.command, description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--ranks", type=int, default=NUM_RANKS)
    parser.add_argument("--share", type=float, default=SHARE)
    given = parser.parse_args(arguments)
    chosen = FleetReturn(num_ranks=given.ranks, share=given.share)
    return report(chosen.title, chosen.run(), as_json=given.json)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
