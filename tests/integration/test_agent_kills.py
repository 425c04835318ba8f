"""An agent is killed at a random moment. Another agent ships the rest, and each record is stored once."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from diagnose.model.run_state import RunState, heard_of
from telemetry.stores.queries import HighWater, RunBeats
from telemetry.wire.client import CollectorClient
from tests.deadline import until
from tests.integration.counted import records_written
from tests.integration.processes import Part, Road
from tests.trainer.jobs import alive

pytestmark = [pytest.mark.chaos, pytest.mark.long, pytest.mark.timeout(600)]

NUM_KILLS = 20
STARTERS = ("telemetry.start", "launcher", "service")
RUN = "kills"
RANK = """
import signal, sys, threading
import telemetry
told = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: told.set())
spool, collector, agent = sys.argv[1:]
telemetry.start("kills", rank=0, host="host", attempt=0, spool=spool, collector=collector, agent=agent == "1")
number = 0
while not told.wait(0.01):
    with telemetry.step(number), telemetry.span("forward-compute"):
        number += 1
telemetry.stop()
"""
STORED = """
import json, sys
from telemetry.stores.open import open_store
store = open_store(sys.argv[1])
tables = " UNION ALL ".join(f"SELECT rank, seq FROM {table}" for table in ("spans", "samples", "marks"))
counts = f"SELECT rank, count() AS stored, uniqExact(seq) AS different FROM ({tables}) GROUP BY rank ORDER BY rank"
print(json.dumps(store.query(counts).to_pylist()))
store.close()
"""


class Scene:
    """A job, its agent and a collector in one folder."""

    def __init__(self, folder: Path, starter: str) -> None:
        self.road = Road(folder, f"embedded:{folder / 'store'}", num_ranks=0)
        self.starter, self.spool = starter, folder / "spool"
        self.service = Part("service", [*self._agent, "--run", RUN], folder / "service.log", forks=False)
        own_agent = str(int(starter == "telemetry.start"))
        rank = [sys.executable, "-c", RANK, str(self.spool), self.road.url, own_agent]
        train = [
            *(sys.executable, "-m", "ui.cli", "train", "--dp", "2", "--pp", "1", "--tp", "1", "--steps", "100000"),
            *("--run", RUN, "--out", str(folder), "--collector", self.road.url),
        ]
        self.job = Part("job", train if starter == "launcher" else rank, folder / "job.log", forks=False)

    @property
    def _agent(self) -> list[str]:
        return [sys.executable, "-m", "telemetry.agent", "--spool", str(self.spool), "--collector", self.road.url]

    def agent(self) -> int | None:
        """The pid of the running agent."""
        for place in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                words = place.read_bytes().decode(errors="replace").split("\0")
                if "telemetry.agent" in words and str(self.spool) in words and alive(int(place.parent.name)):
                    return int(place.parent.name)
        return None

    def start(self) -> None:
        self.road.start_collector()
        self.job.start()
        if self.starter == "service":
            until(lambda: list(self.spool.glob("*/*/rank-*/meta.json")), what="a rank", seconds=120)
            self.service.start()

    def stored(self) -> int:
        with CollectorClient(self.road.url) as client:
            marks = client.read(HighWater(run_id=RUN, attempt=0, table="spans"))
        return sum(marks["next_seq"].to_pylist())

    def state(self) -> RunState:
        with CollectorClient(self.road.url) as client:
            return heard_of(client, RUN, 0).state

    def has_heartbeat(self) -> bool:
        with CollectorClient(self.road.url) as client:
            return client.read(RunBeats(run_ids=(RUN,))).num_rows > 0

    def kill_agent(self) -> None:
        pid = self.agent()
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
            until(lambda: self.agent() != pid, what="its death")

    def clean_up(self) -> None:
        for part in (self.job, self.service, self.road.collector):
            part.kill()
        if (left := self.agent()) is not None:
            os.kill(left, signal.SIGKILL)


@pytest.fixture(params=range(NUM_KILLS))
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Scene, random.Random]]:
    made = Scene(tmp_path, STARTERS[request.param % len(STARTERS)])
    yield made, random.Random(request.param)
    made.clean_up()


def test_killed_agent_is_replaced_and_each_record_is_stored_once(
    scene: tuple[Scene, random.Random],
) -> None:
    at, chance = scene
    at.start()
    until(lambda: at.agent() is not None, what="an agent", seconds=120)
    if at.starter == "service":
        until(at.has_heartbeat, what="a heartbeat", seconds=120)
    time.sleep(chance.uniform(0, 5))  # the input of this trial: in the imports, the first turn or a later one
    at.kill_agent()
    if at.starter == "service":
        until(lambda: at.state() is RunState.SILENT, what="a gap that is visible", seconds=60, every=0.5)
        at.service.start()
    until(lambda: at.agent() is not None, what="another agent", seconds=120)
    before = at.stored()
    until(lambda: at.stored() > before, what="more that is stored", seconds=120, every=0.2)
    until(lambda: at.state() is RunState.LIVE, what="the end of the gap", seconds=120)
    at.job.end(60)
    until(lambda: at.agent() is None, what="the end of the agent", seconds=120)
    at.road.collector.end()
    written = records_written(at.spool)
    told = subprocess.run(
        [sys.executable, "-c", STORED, f"embedded:{at.spool.parent / 'store'}"],
        capture_output=True,
        text=True,
        check=True,
    )
    rows = json.loads(told.stdout)
    assert [row["different"] for row in rows] == written
    assert [row["stored"] for row in rows] == written
