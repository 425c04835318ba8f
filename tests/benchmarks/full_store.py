"""Cost of the list of runs and of dashboard pages on a store with thousands of runs and one run of a million steps.

A collector with an embedded store answers. Its processor time and its memory are measured.

python -m tests.benchmarks.full_store [--store DIR] [--runs 5000] [--json]

``--store DIR`` keeps the store, and uses it again.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx
import psutil

from telemetry.collector.serving import listen
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from telemetry.stores.queries import StoredRuns
from tests.benchmarks.figures import Figure, report
from tests.benchmarks.many_runs import ENDLESS, endless_run, short_runs
from tests.benchmarks.page_views import Visitor
from tests.deadline import until

VIEWS = ("overview", "heatmap", "timeline", "grid", "whatif", "hang", "fleet", "clock")
PAGES_VIEWED = 480
REST_S = 12.0
"""Pause after the last page. Freed memory is returned every ten seconds."""
COMMAND_S, LIST_S, PAGE_S, AGAIN_S = 4.0, 4.0, 8.0, 1.5
"""Bounds of processor time."""
MAX_GROWTH, MAX_MIB = 0.1, 800.0
MIB = 2**20
COMMAND = [sys.executable, "-m", "ui.cli"]


class Cost(NamedTuple):
    """Processor time and wall time, seconds."""

    processor_s: float
    wall_s: float


class FullStore:
    """The command, the pages and the memory, one after another."""

    title = "A store with many runs, and a run of a million steps"
    command = "python -m tests.benchmarks.full_store"

    def run(self, folder: Path | None = None, num_runs: int = 5000) -> list[Figure]:
        if folder is None:
            with tempfile.TemporaryDirectory(prefix="rankscope-full-store-") as name:
                return self.run(Path(name) / "store", num_runs)
        build(folder, num_runs)
        commands = [*_command_figures(folder)]
        with _collecting(folder) as (address, collector):
            visitor = Visitor(address)
            return [*commands, *_page_figures(visitor, collector), *_memory_figures(visitor, collector, num_runs)]


def build(folder: Path, num_runs: int) -> None:
    """Fill the store in ``folder``. Runs that it has are not made again."""
    store = EmbeddedStore(folder)
    try:
        store.migrate()
        stored = set(StoreReader(store).read(StoredRuns())["run_id"].to_pylist())
        for runs in short_runs(num_runs):
            if stored.isdisjoint(runs.names):
                runs.store(store)
        if ENDLESS not in stored:
            endless_run().store(store)
        until(
            lambda: not store.query("SELECT 1 FROM system.merges").num_rows, seconds=600, what="the end of the merges"
        )
    finally:
        store.close()


def _command_figures(folder: Path) -> Iterator[Figure]:
    for options in ([], ["--limit", "0"], ["--json"]):
        command = [*COMMAND, "runs", *options, "--store", f"embedded:{folder}"]
        before, began_s = psutil.Process().cpu_times(), time.monotonic()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        after, lasted_s = psutil.Process().cpu_times(), time.monotonic() - began_s
        spent_s = after.children_user + after.children_system - before.children_user - before.children_system
        yield _cost(" ".join(["rankscope runs", *options]), Cost(spent_s, lasted_s), COMMAND_S)


@contextmanager
def _collecting(folder: Path) -> Iterator[tuple[str, psutil.Process]]:
    """Address and process of a collector over the store."""
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    command = [*COMMAND, "collect", "--store", f"embedded:{folder}", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            until(lambda: _answers(address), seconds=120, what="the collector")
            yield address, psutil.Process(process.pid)
        finally:
            process.terminate()


def _answers(address: str) -> bool:
    try:
        return httpx.get(f"{address}/_dash-dependencies").is_success
    except httpx.TransportError:
        return False


def _page_figures(visitor: Visitor, collector: psutil.Process) -> Iterator[Figure]:
    searches = {"list of runs": "?view=runs", "list of runs, by goodput": "?view=runs&order=goodput"}
    searches |= {f"{view}, a million steps": f"?view={view}&run={ENDLESS}" for view in VIEWS}
    for name, search in searches.items():
        visit = _visiting(visitor, search)
        yield _cost(f"{name}, first", _cost_of(visit, collector), PAGE_S)
        yield _cost(f"{name}, again", _cost_of(visit, collector), LIST_S if "list" in name else AGAIN_S)


def _visiting(visitor: Visitor, search: str) -> Callable[[], object]:
    return lambda: visitor.visit(search)


def _cost_of(work: Callable[[], object], collector: psutil.Process) -> Cost:
    before, began_s = collector.cpu_times(), time.monotonic()
    work()
    after = collector.cpu_times()
    return Cost(after.user + after.system - before.user - before.system, time.monotonic() - began_s)


def _cost(name: str, cost: Cost, bound_s: float) -> Figure:
    note = f"wall time {cost.wall_s:.2f} s"
    return Figure(name=name, value=cost.processor_s, unit="s", bound=bound_s, note=note)


def _memory_figures(visitor: Visitor, collector: psutil.Process, num_runs: int) -> Iterator[Figure]:
    """Memory over pages of as many runs as there are views of each."""
    sizes = []
    for number in range(PAGES_VIEWED):
        run = f"run-{number // len(VIEWS) % num_runs:05d}"
        visitor.visit(f"?view={VIEWS[number % len(VIEWS)]}&run={run}")
        sizes.append(_memory_mib(collector))
    quarter = len(sizes) // 4
    early, late = statistics.median(sizes[quarter : 2 * quarter]), statistics.median(sizes[-quarter:])
    yield Figure(
        name="collector, last quarter of the pages",
        value=late,
        unit="MiB",
        rival="second quarter",
        rival_value=early,
        bound=early * (1 + MAX_GROWTH),
        low=min(sizes),
        high=max(sizes),
        note=f"{PAGES_VIEWED} pages of {PAGES_VIEWED // len(VIEWS)} runs; spread: smallest and largest",
    )
    time.sleep(REST_S)
    yield Figure(name="collector at rest", value=_memory_mib(collector), unit="MiB", bound=MAX_MIB)


def _memory_mib(process: psutil.Process) -> float:
    return float(process.memory_full_info().pss) / MIB


BENCHMARK = FullStore()


def main() -> int:
    """Print the figures. The exit status is 1 if a bound is broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, help="folder of the store; made where it is missing")
    parser.add_argument("--runs", type=int, default=5000)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    return report(FullStore.title, BENCHMARK.run(given.store, given.runs), as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
