"""What questions to one store cost, in a process of its own. Prints question -> [processor s, wall s] as JSON.

python -m tests.benchmarks.store_questions ask STORE [RUN]     lists of runs; with RUN, also its diagnosis
python -m tests.benchmarks.store_questions expire STORE DAYS   the deletion of raw rows that are older

Each question is sent several times. The first answer needs the engine to open its tables; nothing is cached. Later
answers find caches of the engine, but not of the dashboard.
"""

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from diagnose.pipeline import diagnose_run
from diagnose.run_list import runs_object
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import Reader, StoreReader
from telemetry.stores.retention import Limits
from tests.benchmarks.measured_collector import Cost, cost_of
from tests.deadline import until
from ui.cli.commands.runs import NEWEST
from ui.dashboard.data import Reads
from ui.dashboard.pages.runs.listing import run_list
from ui.dashboard.view_state import RunOrder

PAGE, PAGE_BY_GOODPUT, SEARCH = "page, list of runs", "page, runs by goodput", "page, search by name"
COMMAND, COMMAND_ALL, DIAGNOSE = "rankscope runs", "rankscope runs --limit 0", "rankscope diagnose"
TIMES, MOST_S = 5, 10.0
"""Each question is sent so often, unless its answers take this processor time together."""
EXPIRED_S = 600.0


def ask(folder: Path, run: str = "") -> dict[str, list[Cost]]:
    """The costs of every question, in the order of the answers, from a new process."""
    return _in_a_process("ask", str(folder), *[run] * bool(run))


def expire(folder: Path, days: int) -> Cost:
    """The cost of a limit of so many days, until the older raw rows are deleted. The store is copied."""
    with tempfile.TemporaryDirectory(prefix="rankscope-expire-") as name:
        copy = shutil.copytree(folder, Path(name) / "store", symlinks=True)  # they are relative
        return _in_a_process("expire", str(copy), str(days))["retention"][0]


def usual(costs: list[Cost]) -> float:
    """The median processor time of the answers after the first. If that took very long, it is the only one."""
    return statistics.median(cost.processor_s for cost in costs[1:] or costs)


def _in_a_process(*words: str) -> dict[str, list[Cost]]:
    command = [sys.executable, "-m", "tests.benchmarks.store_questions", *words]
    answered = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return {name: [Cost(*cost) for cost in costs] for name, costs in json.loads(answered.stdout).items()}


def _questions(reader: Reader, run: str) -> dict[str, Callable[[], object]]:
    """The work of pages and commands, without their text."""
    asked: dict[str, Callable[[], object]] = {
        PAGE: lambda: run_list(Reads(reader)),
        PAGE_BY_GOODPUT: lambda: run_list(Reads(reader), order=RunOrder.GOODPUT),
        SEARCH: lambda: run_list(Reads(reader), find="123"),
        COMMAND: lambda: runs_object(reader, NEWEST),
        COMMAND_ALL: lambda: runs_object(reader),
    }
    return asked | ({DIAGNOSE: lambda: diagnose_run(reader, run, 0)} if run else {})


def _repeated(work: Callable[[], object]) -> Iterator[Cost]:
    spent_s = 0.0
    for _ in range(TIMES):
        cost = cost_of(work)
        yield cost
        spent_s += cost.processor_s
        if spent_s > MOST_S:
            return


def _expired(store: EmbeddedStore, days: int) -> None:
    old = f"SELECT 1 FROM system.parts WHERE active AND table = 'spans' AND max_date < today() - {days}"
    store.migrate(limits=Limits(raw_days=days))
    until(lambda: not store.query(old).num_rows, seconds=EXPIRED_S, what="the deletion of expired parts")


def main(what: str, folder: str, about: str = "") -> None:
    store = EmbeddedStore(Path(folder))
    try:
        if what == "expire":
            costs = {"retention": [cost_of(lambda: _expired(store, int(about)))]}
        else:
            asked = _questions(StoreReader(store), about)
            costs = {name: [*_repeated(work)] for name, work in asked.items()}
        json.dump(costs, sys.stdout)
    finally:
        store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
