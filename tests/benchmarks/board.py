"""Time of the queries of the Grafana board on a run of 1,024 ranks, in the embedded engine.

python -m tests.benchmarks.board [--sizes 10,50] [--json]

A board opens with one query for each of its panels, annotations and variables. Figures are the sum over all of them,
and the slowest one, for the newest five minutes of the run and for all of it. The bound is the limit of the database
user of Grafana. The store is in a new folder below ``TMPDIR``, and needs seven bytes per span.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from telemetry.host_metrics import Metric
from telemetry.stores.embedded import EmbeddedStore
from tests.benchmarks.figures import Figure, report
from tests.benchmarks.made_spans import FIRST_NS, SPANS_A_STEP
from tests.benchmarks.queries import MILLION, NUM_RANKS, grown
from tests.deploy.board import Question, Window, questions, read_board, written_out

SIZES = (10, 50)
"""Millions of spans, ascending."""
TURNS = 3
NEWEST_S = 300
NUM_BUCKETS = 500
"""Points of a curve, about as many as Grafana asks for."""
LIMIT_MS = 60_000.0
"""``max_execution_time`` of the user ``reader``."""


class BoardBenchmark:
    """The board of ``deploy/grafana``."""

    title = "The Grafana board with a large run"
    command = "python -m tests.benchmarks.board"

    def run(self, sizes: tuple[int, ...] = SIZES) -> list[Figure]:
        asked = list(questions(read_board()))
        with tempfile.TemporaryDirectory(prefix="rankscope-board-") as folder:
            store = EmbeddedStore(Path(folder))
            try:
                store.migrate()
                return [figure for num_steps in grown(store, sizes) for figure in _figures(store, asked, num_steps)]
            finally:
                store.close()


def _figures(store: EmbeddedStore, asked: list[Question], num_steps: int) -> Iterator[Figure]:
    num_spans = num_steps * NUM_RANKS * SPANS_A_STEP
    last_ns = store.query("SELECT max(start_ns) AS last FROM spans")["last"][0].as_py()
    first_s, last_s = FIRST_NS // 10**9 - 1, last_ns // 10**9 + 1
    for name, begin_s in (("newest five minutes", max(first_s, last_s - NEWEST_S)), ("whole run", first_s)):
        window = Window(first_s=begin_s, last_s=last_s, bucket_s=max(1, (last_s - begin_s) // NUM_BUCKETS))
        chosen = {
            "run": ["run"],
            "attempt": ["0"],
            "stage": ["forward-compute", "backward-compute"],
            "metric": [str(Metric.GPU_TEMPERATURE_C)],
            "step": [str(num_steps // 2)],
        }
        times_ms = {one.where: _median_ms(store, written_out(one.sql, chosen, window)) for one in asked}
        slowest = max(times_ms, key=lambda where: times_ms[where])
        size = f"{num_spans / MILLION:.0f}M, {name} ({last_s - begin_s} s)"
        yield Figure(name=f"{size}: all queries", value=sum(times_ms.values()), unit="ms", note=f"{len(asked)} queries")
        yield Figure(name=f"{size}: slowest", value=times_ms[slowest], unit="ms", bound=LIMIT_MS, note=slowest)


def _median_ms(store: EmbeddedStore, sql: str) -> float:
    times_ms = []
    for _ in range(TURNS):
        began = time.perf_counter()
        store.query(sql)
        times_ms.append((time.perf_counter() - began) * 1e3)
    return float(np.median(times_ms))


BENCHMARK = BoardBenchmark()


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
