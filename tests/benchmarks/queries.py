"""Time of the queries of dashboards and detectors on a run of 1,024 ranks that grows from 10 to 300 million spans.

python -m tests.benchmarks.queries [--sizes 10,100,300] [--json]

Figures are medians from the typed query to Arrow columns, in the embedded engine on this machine, after the merges of
the engine have ended. The rival is the same SQL without roll-ups. Bounds are for 100 million spans. The store is in a
new folder below ``TMPDIR``, and needs seven bytes per span.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from telemetry.stages import Stage
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import Query
from telemetry.stores.queries import (
    HeatCells,
    Lanes,
    RankStageMeans,
    Runs,
    Spans,
    StageCounts,
    Steps,
    StragglerScan,
)
from tests.benchmarks.figures import Figure, report
from tests.benchmarks.made_spans import SPANS_A_STEP, MadeJob
from tests.deadline import until
from tests.telemetry.made_rows import insert

MILLION = 1_000_000
SIZES = (10, 100, 300)
"""Millions of spans, ascending. The run grows from one size to the next."""
BOUNDED_SIZE = 100
NUM_RANKS = 1024
STEPS_A_BLOCK = 10
SHOWN_RANKS = tuple(range(64))
TURNS = 15
RIVAL_TURNS = 3
RIVAL = "without roll-ups"
NO_ROLLUPS = "SETTINGS optimize_use_projections = 0"
MERGED_S = 1800.0
BOUNDS_MS = {
    "heat map: rank by step": 200.0,
    "heat map: rank by stage": 200.0,
    "timeline of one step: 64 ranks": 50.0,
    "timeline of one step: all ranks, longest spans": 50.0,
    "scan for slow ranks": 500.0,
    "newest ten steps": 50.0,
}


class QueryBenchmark:
    """One run in one store. The same queries run on the whole run each time that it has grown."""

    title = "Queries over 10 to 300 million spans"
    command = "python -m tests.benchmarks.queries"

    def run(self, sizes: tuple[int, ...] = SIZES) -> list[Figure]:
        with tempfile.TemporaryDirectory(prefix="rankscope-queries-") as folder:
            store = EmbeddedStore(Path(folder))
            try:
                store.migrate()
                return [figure for num_steps in grown(store, sizes) for figure in _figures(store, num_steps)]
            finally:
                store.close()


def grown(store: EmbeddedStore, sizes: tuple[int, ...]) -> Iterator[int]:
    """Number of stored steps, each time the run has reached a size."""
    targets = [max(STEPS_A_BLOCK, round(size * MILLION / (NUM_RANKS * SPANS_A_STEP))) for size in sizes]
    num_steps = 0
    for block in MadeJob(num_ranks=NUM_RANKS, num_steps=targets[-1]).blocks(STEPS_A_BLOCK):
        insert(store, "spans", block)
        num_steps += STEPS_A_BLOCK
        while targets and num_steps >= targets[0]:
            targets.pop(0)
            until(lambda: _is_merged(store), seconds=MERGED_S, what="the engine to merge what it wants to")
            yield num_steps


def _is_merged(store: EmbeddedStore) -> bool:
    return not store.query("SELECT 1 FROM system.merges").num_rows


def questions(num_steps: int) -> dict[str, Query]:
    """The queries for a run of ``num_steps`` steps."""
    run = {"run_id": "run", "attempt": 0}
    everything = {**run, "first_step": 0, "last_step": num_steps - 1}
    middle = {**run, "first_step": num_steps // 2, "last_step": num_steps // 2}
    cells = {"stage": int(Stage.BACKWARD_COMPUTE), "num_ranks": NUM_RANKS, "max_rows": 400, "max_columns": 600}
    return {
        "heat map: rank by step": HeatCells(**everything, **cells),
        "heat map: rank by stage": RankStageMeans(**everything),
        "timeline of one step: 64 ranks": Spans(**middle, ranks=SHOWN_RANKS, longest=2000),
        "timeline of one step: all ranks, longest spans": Spans(**middle, longest=3),
        "number of spans in each lane of a step": Lanes(**middle),
        "scan for slow ranks": StragglerScan(**everything),
        "newest ten steps": Steps(**run, newest=10),
        "all steps": Steps(**run),
        "stages and their sums": StageCounts(**run),
        "list of runs": Runs(),
    }


def _figures(store: EmbeddedStore, num_steps: int) -> Iterator[Figure]:
    num_spans = num_steps * NUM_RANKS * SPANS_A_STEP
    size = round(num_spans / MILLION)
    for name, query in questions(num_steps).items():
        sql, parameters = query.sql(), query.parameters()
        times_ms = [_asked_ms(store, sql, parameters) for _ in range(1 + TURNS)][1:]
        plain_ms = [_asked_ms(store, f"{sql} {NO_ROLLUPS}", parameters) for _ in range(1 + RIVAL_TURNS)][1:]
        median, low, high = np.percentile(times_ms, (50, 10, 90)).tolist()
        yield Figure(
            name=f"{size}M: {name}",
            value=median,
            low=low,
            high=high,
            unit="ms",
            bound=BOUNDS_MS.get(name) if size in range(BOUNDED_SIZE, BOUNDED_SIZE + 10) else None,
            rival=RIVAL,
            rival_value=float(np.median(plain_ms)),
            note=f"{num_steps:,} steps, {num_spans:,} spans",
        )


def _asked_ms(store: EmbeddedStore, sql: str, parameters: dict[str, object]) -> float:
    began = time.perf_counter()
    store.query(sql, parameters)  # type: ignore[arg-type]
    return (time.perf_counter() - began) * 1e3


BENCHMARK = QueryBenchmark()


def main() -> int:
    """Print the figures. The exit status is 1 if a bound is broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="millions of spans, ascending")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    sizes = tuple(int(one) for one in chosen.sizes.split(","))
    return report(BENCHMARK.title, BENCHMARK.run(sizes), as_json=chosen.json)


if __name__ == "__main__":
    sys.exit(main())
