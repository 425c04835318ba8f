"""Many agents in one process: the loop, the back-off and the client of the product, each with a thread.

python -m tests.benchmarks.fleet.agents SETTINGS     settings as JSON, see :class:`Settings`

    stdout: ready    stdin: a line, the agents begin    stdin: a line, they end    stdout: a :class:`Told` as JSON
"""

import json
import random
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from telemetry.agent.loop import Agent, BackOff
from telemetry.agent.sampling import INTERVAL_S, ClockPing
from telemetry.agent.settings import AgentSettings
from telemetry.errors import UnreachableError
from telemetry.wire.client import CollectorClient
from tests.benchmarks.fleet.poster import Told, Watched
from tests.benchmarks.fleet.samples import MadeReports
from tests.benchmarks.fleet.spool import ReturningAgent, write_spool
from tests.benchmarks.fleet.traffic import MadeHost, Plan, Shapes, Sums

STACK_BYTES = 512 * 1024
DRAIN_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The agents of one process. Agent ``i`` uses collector ``i`` modulo their number, as behind a load balancer that
    keeps an address at one collector."""

    urls: tuple[str, ...]
    first_host: int
    num_hosts: int
    plan: Plan
    interval_s: float
    spool: str = ""
    """Folder for rank files of agents that return after an outage. Empty: records are made when they are read."""
    num_steps: int = 0
    """Steps in these files."""

    @classmethod
    def parse(cls, text: str) -> "Settings":
        values = json.loads(text)
        return cls(**{**values, "urls": tuple(values["urls"]), "plan": Plan(**values["plan"])})


class MadeAgent:
    """One agent, in a thread of its own."""

    def __init__(self, settings: Settings, number: int, shapes: Shapes) -> None:
        self._interval_s = settings.interval_s
        self._client = CollectorClient(settings.urls[number % len(settings.urls)])
        self.poster = Watched(self._client)
        self.host = MadeHost(settings.plan, number, shapes)
        self.reports = MadeReports(self.host)
        self.pings = ClockPing(self._client.time, self._client.close)
        agent_settings = AgentSettings(spool=Path("made"), collector=self._client.url, interval_s=settings.interval_s)
        self._agent = Agent(self.host, self.poster, agent_settings, reports=self.reports)  # type: ignore[arg-type]
        self.stop = threading.Event()
        self.stored = False

    @property
    def sums(self) -> Sums:
        """Of the stored spans."""
        return self.host.sums

    def run(self) -> None:
        """Run until ``stop`` is set, then store what was recorded until then."""
        self.stop.wait(random.uniform(0, self._interval_s))
        with suppress(UnreachableError):
            self._agent.run(self.stop)
        self.host.freeze()
        back_off, end_s = BackOff(), time.monotonic() + DRAIN_S
        while not self.stored and time.monotonic() < end_s:
            try:
                self._agent.turn()
                self.stored = self.host.position == self.host.due()
            except UnreachableError as error:
                back_off.failed(error)
                time.sleep(back_off.seconds)


def ping_clocks(agents: list[MadeAgent]) -> None:
    """Ping the clock of the collector for each agent every 30 s, one agent after another."""
    while True:
        began_s = time.monotonic()
        for number, agent in enumerate(agents):
            if agent.stop.wait(max(0.0, began_s + INTERVAL_S * number / len(agents) - time.monotonic())):
                return
            at_ns = time.time_ns()
            agent.reports.add(at_ns, agent.pings.sample(at_ns).readings)


@contextmanager
def running(agents: Sequence[MadeAgent | ReturningAgent]) -> Iterator[None]:
    """Threads of all agents, from here until they are asked to stop and have ended."""
    threading.stack_size(STACK_BYTES)
    threads = [threading.Thread(target=agent.run) for agent in agents]
    if made := [agent for agent in agents if isinstance(agent, MadeAgent)]:
        threads.append(threading.Thread(target=ping_clocks, args=(made,)))
    for thread in threads:
        thread.start()
    yield
    for agent in agents:
        agent.stop.set()
    for thread in threads:
        thread.join()


def added(agents: Sequence[MadeAgent | ReturningAgent]) -> Told:
    """What all of them did."""
    told = Told(unfinished=sum(not agent.stored for agent in agents), cpu_s=time.process_time())
    for agent in agents:
        told.sums.join(agent.sums)
        told.add(agent.poster.told)
    return told


def open_agents(settings: Settings) -> Iterator[MadeAgent | ReturningAgent]:
    """The agents of this process. Those that return write their rank files first."""
    shapes = Shapes(settings.plan.period_ns)
    for number in range(settings.first_host, settings.first_host + settings.num_hosts):
        if not settings.spool:
            yield MadeAgent(settings, number, shapes)
            continue
        spool = Path(settings.spool) / f"host-{number:05d}"
        sums = write_spool(spool, settings.plan, number, shapes, settings.num_steps)
        yield ReturningAgent(settings.urls[number % len(settings.urls)], spool, sums, settings.interval_s)


def main(text: str) -> None:
    settings = Settings.parse(text)
    agents = list(open_agents(settings))
    print("ready", flush=True)
    sys.stdin.readline()
    with running(agents):
        sys.stdin.readline()
    print(added(agents).as_json(), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
