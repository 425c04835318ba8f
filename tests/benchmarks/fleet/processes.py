"""The processes of a load on a fleet: collectors, and agents. And the check that all is stored once."""

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace

import psutil

from telemetry.stores.interface import Store
from telemetry.wire.client import CollectorClient
from tests.benchmarks.fleet.agents import Settings
from tests.benchmarks.fleet.poster import Told
from tests.benchmarks.fleet.traffic import RUN, Sums
from tests.deadline import until
from tests.integration.processes import COLLECT, free_port

NUM_PROCESSES = 3


@contextmanager
def collector(store_url: str, port: int | None = None) -> Iterator[tuple[psutil.Process, str]]:
    """A collector that answers, and its address."""
    port = port or free_port()
    url = f"http://127.0.0.1:{port}"
    # All agents have one address here, so the limit of an address must not apply.
    environment = {**os.environ, "RANKSCOPE_REQUESTS_PER_SECOND": "0"}
    process = subprocess.Popen([sys.executable, "-c", COLLECT, store_url, str(port)], env=environment)
    try:
        with CollectorClient(url) as client:
            until(lambda: client.healthy() or process.poll() is not None, what="the collector")
        yield psutil.Process(process.pid), url
    finally:
        process.terminate()
        process.wait()


class Agents:
    """The processes of all agents. ``settings``: those of one process with all agents."""

    def __init__(self, settings: Settings) -> None:
        self._processes: list[subprocess.Popen[str]] = []
        bounds = [settings.num_hosts * number // NUM_PROCESSES for number in range(NUM_PROCESSES + 1)]
        for first, end in itertools.pairwise(bounds):
            own = asdict(replace(settings, first_host=first, num_hosts=end - first))
            command = [sys.executable, "-m", "tests.benchmarks.fleet.agents", json.dumps(own)]
            process = subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self._processes.append(process)

    def wait_until_ready(self) -> None:
        for process in self._processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"

    def begin(self) -> None:
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()

    def stop(self) -> Told:
        """Stop all agents once what they recorded is stored. Returns what they did together."""
        self.begin()  # the second line ends them
        told = Told()
        for process in self._processes:
            told.add(Told.parse(process.communicate()[0]))
        return told

    def kill(self) -> None:
        """Safe to repeat."""
        for process in self._processes:
            process.kill()
            process.wait()


def check_stored(store: Store, told: Told, num_ranks: int) -> None:
    """Every acknowledged span is stored exactly once.

    Raises:
        AssertionError: it is not.
    """
    of_run = f"FROM spans WHERE run_id = '{RUN}'"
    stored = store.query(
        f"SELECT count() AS rows, sum(seq) AS seq, sum(toUInt64(start_ns)) AS start_ns, "
        f"sum(toUInt64(duration_ns)) AS duration_ns, uniqExact(rank) AS ranks {of_run}"
    ).to_pylist()[0]
    assert stored.pop("ranks") == num_ranks, stored
    assert Sums(**stored) == told.sums, (stored, told.sums)
