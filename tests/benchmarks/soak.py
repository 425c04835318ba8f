"""Jobs run for weeks: the memory of a rank, the agent and the collector over many steps, as real processes.

python -m tests.benchmarks.soak [--steps 10000] [--json]
"""

import argparse
import statistics
import sys
import tempfile
import threading
from collections import defaultdict
from pathlib import Path

import psutil

from telemetry.stores.queries import Heartbeats
from telemetry.wire.client import CollectorClient
from tests.benchmarks.figures import Figure, report
from tests.integration.processes import Part, Road, road
from tests.integration.writer import RUN, SPANS_PER_STEP

NUM_RANKS = 4
SAMPLE_S = 0.25
MAX_GROWTH = 0.05
SLACK_MIB = 8.0
"""Growth that every process may have in addition to 5%, because allocators vary."""
MIB = 2**20

Sizes = dict[str, list[float]]
"""Name of a process -> its resident MiB, sample by sample."""


class Soak:
    """Resident memory in the last quarter of the run, compared with the second quarter. The first is the warm-up."""

    title = "Memory over many steps"
    command = "python -m tests.benchmarks.soak"

    def __init__(self, num_steps: int = 10_000) -> None:
        self._num_steps = num_steps

    def run(self) -> list[Figure]:
        with tempfile.TemporaryDirectory(prefix="soak-") as place:
            store = f"embedded:{Path(place) / 'store'}"
            with road(Path(place), store, num_ranks=NUM_RANKS, num_steps=self._num_steps, forks=False) as running:
                sizes = _watch(running)
                assert running.agent.wait(120) == 0, running.agent.said()
                _check_complete(running, self._num_steps)
        size = f"{self._num_steps} steps, {NUM_RANKS} ranks, {SPANS_PER_STEP + 1} spans per step"
        note = f"{size}; spread: smallest and largest"
        return [_figure(name, values, note) for name, values in sizes.items()]


def _watch(running: Road) -> Sizes:
    """Sample the memory of every process until the ranks are done."""
    sizes: Sizes = defaultdict(list)
    pause = threading.Event()
    while all(rank.running for rank in running.ranks):
        for part in running.parts:
            if part.running:
                sizes["rank" if part in running.ranks else part.name].append(_resident_mib(part))
        pause.wait(SAMPLE_S)
    return sizes


def _resident_mib(part: Part) -> float:
    return psutil.Process(part.pid).memory_info().rss / MIB


def _check_complete(running: Road, num_steps: int) -> None:
    with CollectorClient(running.url) as client:
        beats = client.read(Heartbeats(run_id=RUN, attempt=0))
    assert beats["dropped"].to_pylist() == [0] * NUM_RANKS, "the ranks outran the agent"
    assert beats["step"].to_pylist() == [num_steps - 1] * NUM_RANKS


def _figure(name: str, values: list[float], note: str) -> Figure:
    quarter = len(values) // 4
    early, late = statistics.median(values[quarter : 2 * quarter]), statistics.median(values[-quarter:])
    return Figure(
        name=f"{name}: last quarter",
        value=late,
        unit="MiB",
        rival="second quarter",
        rival_value=early,
        bound=early * (1 + MAX_GROWTH) + SLACK_MIB,
        low=min(values),
        high=max(values),
        note=note,
    )


BENCHMARK = Soak()


def main() -> int:
    parser = argparse.ArgumentParser(prog=Soak.command, description=__doc__)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    return report(Soak.title, Soak(given.steps).run(), as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
