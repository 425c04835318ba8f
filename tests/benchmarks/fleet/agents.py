"""Many agents in one process: rounds, back-off and client of the product.

python -m tests.benchmarks.fleet.agents SETTINGS     settings as JSON, see :class:`Settings`

    stdout: ready    stdin: a line, the agents begin    stdin: a line, they end    stdout: a :class:`Told` as JSON
"""

import json
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from telemetry.agent.loop import Agent, BackOff, pause_s
from telemetry.agent.sampling import INTERVAL_S, ClockPing
from telemetry.agent.settings import AgentSettings
from telemetry.errors import UnreachableError
from telemetry.process.process_memory import limit_arenas
from telemetry.wire.client import CollectorClient
from tests.benchmarks.fleet.poster import Told, Watched
from tests.benchmarks.fleet.rota import Rota, Task
from tests.benchmarks.fleet.samples import MadeReports
from tests.benchmarks.fleet.spool import ReturningAgent, write_spool
from tests.benchmarks.fleet.traffic import MadeHost, Plan, Shapes, Sums

NUM_THREADS = 96
LATE_EVERY = 20
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
    """One agent whose records are made when they are read."""

    def __init__(self, settings: Settings, number: int, shapes: Shapes) -> None:
        self._client = CollectorClient(settings.urls[number % len(settings.urls)])
        self.poster = Watched(self._client)
        self._host = MadeHost(settings.plan, number, shapes)
        self._reports = MadeReports(self._host)
        self._pings = ClockPing(self._client.time, self._client.close)
        agent_settings = AgentSettings(spool=Path("made"), collector=self._client.url, interval_s=settings.interval_s)
        self._interval_s = settings.interval_s
        self._agent = Agent(self._host, self.poster, agent_settings, reports=self._reports)  # type: ignore[arg-type]
        self._back_off = BackOff()
        self._chance = random.Random()
        self._end_s = 0.0
        self.stored = False

    @property
    def sums(self) -> Sums:
        """Of the stored spans."""
        return self._host.sums

    def tasks(self) -> Iterator[tuple[float, Task]]:
        """The rounds and the pings, from a random time on."""
        yield pause_s(self._interval_s, self._host.num_hosts, self._chance) * random.random(), self._round
        yield random.uniform(0, INTERVAL_S), self._ping

    def last_task(self) -> Task:
        """Store what was read until now."""
        self._host.freeze()
        self._end_s = time.monotonic() + DRAIN_S
        return self._finish

    def _round(self) -> float:
        try:
            self._agent.turn()
            self._back_off.succeeded()
        except UnreachableError as error:
            self._back_off.failed(error)
        pause = pause_s(self._interval_s, self._host.num_hosts, self._chance)
        return max(pause, self._back_off.seconds)

    def _ping(self) -> float:
        at_ns = time.time_ns()
        self._reports.add(at_ns, self._pings.sample(at_ns).readings)
        return INTERVAL_S

    def _finish(self) -> float | None:
        self._round()
        self.stored = self._host.position == self._host.due()
        return None if self.stored or time.monotonic() > self._end_s else self._back_off.seconds


def added(agents: Sequence[MadeAgent | ReturningAgent], rota: Rota, cpu_s: float) -> Told:
    """What all of them did."""
    told = Told(unfinished=sum(not agent.stored for agent in agents), cpu_s=cpu_s, late_s=rota.late_s[::LATE_EVERY])
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
    limit_arenas()
    settings = Settings.parse(text)
    agents = list(open_agents(settings))
    rota = Rota(NUM_THREADS)
    print("ready", flush=True)
    sys.stdin.readline()
    began_s = time.process_time()
    rota.start(task for agent in agents for task in agent.tasks())
    sys.stdin.readline()
    cpu_s = time.process_time() - began_s
    rota.end(agent.last_task() for agent in agents)
    print(added(agents, rota, cpu_s).as_json(), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
