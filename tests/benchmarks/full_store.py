"""Cost of lists, pages and retention on a store with thousands of runs, one run of a million steps, and one with 30
attempts.

A collector with an embedded store answers. Its processor time and its memory are measured. The queries of lists are
also measured alone, without the start of a process and without drawing (``store_questions.py``).

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
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil

from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from telemetry.stores.queries import StoredRuns
from tests.benchmarks import store_questions
from tests.benchmarks.figures import Figure, report
from tests.benchmarks.many_runs import ENDLESS, RESTARTED, endless_run, restarted_run, short_runs
from tests.benchmarks.measured_collector import COMMAND, Collector, Cost, collecting, cost_of
from tests.benchmarks.page_views import Visitor
from tests.deadline import until

VIEWS = ("overview", "heatmap", "timeline", "grid", "whatif", "hang", "fleet", "clock")
PAGES_VIEWED = 480
REST_S = 12.0
"""Pause after the last page. Freed memory is returned every ten seconds."""
COMMAND_S, LIST_S, PAGE_S, AGAIN_S = 4.0, 4.0, 8.0, 1.5
"""Bounds of processor time."""
QUERIES_S, OVERVIEW_S = 0.5, 1.5
"""Bounds of the queries of a list, and of the first overview of a million steps."""
OLD_DAYS, KEPT_DAYS = 60, 30
MAX_GROWTH, MAX_MIB = 0.1, 800.0
MIB = 2**20


class FullStore:
    """The command, the pages and the memory, one after another."""

    title = "A store with many runs, and a run of a million steps"
    command = "python -m tests.benchmarks.full_store"

    def run(self, folder: Path | None = None, num_runs: int = 5000) -> list[Figure]:
        if folder is None:
            with tempfile.TemporaryDirectory(prefix="rankscope-full-store-") as name:
                return self.run(Path(name) / "store", num_runs)
        build(folder, num_runs)
        figures = [*_command_figures(folder), *_question_figures(folder)]
        with collecting(folder) as collector:
            visitor = Visitor(collector.address)
            figures += [_cost("start of a collector", collector.start, PAGE_S), *_page_figures(visitor, collector)]
            figures += _memory_figures(visitor, collector.process, num_runs)
        expired = store_questions.expire(folder, KEPT_DAYS)
        return [*figures, _cost("deletion of the older half of the runs", expired, AGAIN_S)]


def build(folder: Path, num_runs: int) -> None:
    """Fill the store in ``folder``. Runs that it has are not made again. The first half of the short runs is old."""
    old = (datetime.now(UTC) - timedelta(days=OLD_DAYS)).date()
    store = EmbeddedStore(folder)
    try:
        store.migrate()
        stored = set(StoreReader(store).read(StoredRuns())["run_id"].to_pylist())
        runs = [*short_runs(num_runs // 2, stored_on=old), *short_runs(num_runs - num_runs // 2, num_runs // 2)]
        for each in (*runs, endless_run(), *restarted_run()):
            if stored.isdisjoint(each.names):
                each.store(store)
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


def _question_figures(folder: Path) -> Iterator[Figure]:
    """The queries of lists, without those of one run."""
    for name, costs in store_questions.ask(folder, ENDLESS).items():
        bound_s = AGAIN_S if name == store_questions.DIAGNOSE else QUERIES_S
        yield _cost(f"{name}, first answer", costs[0], PAGE_S)
        again = Cost(*(statistics.median(each) for each in zip(*(costs[1:] or costs), strict=True)))
        yield _cost(f"{name}, later answers", again, bound_s)


def _page_figures(visitor: Visitor, collector: Collector) -> Iterator[Figure]:
    searches = {"list of runs": "?view=runs", "list of runs, by goodput": "?view=runs&order=goodput"}
    searches |= {f"{view}, a million steps": f"?view={view}&run={ENDLESS}" for view in VIEWS}
    searches |= {f"{view}, 30 attempts": f"?view={view}&run={RESTARTED}" for view in ("overview", "goodput")}
    for name, search in searches.items():
        visit = _visiting(visitor, search)
        yield _cost(f"{name}, first", cost_of(visit, collector.process), OVERVIEW_S if "overview" in name else PAGE_S)
        yield _cost(f"{name}, again", cost_of(visit, collector.process), LIST_S if "list" in name else AGAIN_S)


def _visiting(visitor: Visitor, search: str) -> Callable[[], object]:
    return lambda: visitor.visit(search)


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
