"""Cost versus size: one run in a store, from 8 to 12,288 ranks and from an hour to thirty days.

python -m tests.benchmarks.sizes [--only "8 ranks"] [--json]

A step takes 2.592 s, so that thirty days have a million steps. A rank has 6 spans in a step. Each run has a store of
its own, in a new folder below ``TMPDIR``. The largest store has 102 million spans in about 700 MB.

    8 ranks       an hour   a day   a week   30 days      how costs grow with time
    64            an hour   a day                         whether both factors act independently
    512           an hour
    4,096         an hour
    12,288 ranks  an hour                                 how costs grow with ranks
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from telemetry.stores.embedded import EmbeddedStore
from telemetry.topology import Topology
from tests.benchmarks import store_questions
from tests.benchmarks.figures import Figure, as_grid, report
from tests.benchmarks.many_runs import MadeRuns
from tests.benchmarks.measured_collector import Cost, collecting, cost_of
from tests.benchmarks.page_views import Visitor
from tests.benchmarks.storage import at_rest
from tests.deadline import until

STEP_NS = 2_592_000_000
STEPS = {"an hour": 1_389, "a day": 33_333, "a week": 233_333, "30 days": 1_000_000}
GRIDS = {
    8: Topology(dp=2, pp=2, tp=2),
    64: Topology(dp=16, pp=2, tp=2),
    512: Topology(dp=32, pp=4, tp=4),
    4_096: Topology(dp=64, pp=8, tp=8),
    12_288: Topology(dp=192, pp=8, tp=8),
}
SIZES = (
    *((8, lasts) for lasts in STEPS),
    *((64, lasts) for lasts in ("an hour", "a day")),
    *((ranks, "an hour") for ranks in (512, 4_096, 12_288)),
)
RUN = "sized"
OVERVIEW_S, LIST_S = 1.5, 0.5
"""Bounds of processor time for thirty days of 8 ranks."""
OLD_DAYS, KEPT_DAYS = 60, 30
MERGED_S = 3600.0
EXPLANATION = """"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeBenchmark:
    """The same questions to stores of all sizes."""

    title: str = "Cost versus size"
    command: str = "python -m tests.benchmarks.sizes"

    def run(self, only: str = "") -> list[Figure]:
        figures = []
        for size in SIZES:
            if _name(*size).startswith(only):
                print(f"    {_name(*size)}", file=sys.stderr, flush=True)
                figures += _figures_of(*size)
        return figures

    @staticmethod
    def as_text(figures: Sequence[Figure]) -> str:
        """The section of the page."""
        return f"{as_grid(figures, 'one run')}\n\n{EXPLANATION.strip()}"


def _name(num_ranks: int, lasts: str) -> str:
    return f"{num_ranks:,} ranks, {lasts}"


def _figures_of(num_ranks: int, lasts: str) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="rankscope-sizes-") as name:
        folder = Path(name) / "store"
        is_longest = lasts == "30 days"
        for what, value, unit in (*_stored(folder, num_ranks, STEPS[lasts]), *_asked(folder)):
            bound = {"overview": OVERVIEW_S, "list": LIST_S}.get(what) if is_longest else None
            yield Figure(name=f"{_name(num_ranks, lasts)}: {what}", value=value, unit=unit, bound=bound)


def _stored(folder: Path, num_ranks: int, num_steps: int) -> Iterator[tuple[str, float, str]]:
    """Store the run, and return sizes."""
    old = (datetime.now(UTC) - timedelta(days=OLD_DAYS)).date()
    run = MadeRuns(names=(RUN,), topology=GRIDS[num_ranks], num_steps=num_steps, step_ns=STEP_NS, stored_on=old)
    store = EmbeddedStore(folder)
    try:
        store.migrate()
        run.store(store)
        until(lambda: not store.query("SELECT 1 FROM system.merges").num_rows, seconds=MERGED_S, what="the merges")
        sizes = at_rest(store)
        yield "spans", sizes.num_spans / 1e6, "million"
        yield "spans on disk", sizes.whole * sizes.num_spans / 2**20, "MiB"
        yield "of which roll-ups", sum(sizes.rollups.values()) * sizes.num_spans / 2**20, "MiB"
    finally:
        store.close()


def _asked(folder: Path) -> Iterator[tuple[str, float, str]]:
    """Processor time of a collector, of questions, and of retention."""
    with collecting(folder) as collector:
        visitor = Visitor(collector.address)
        overview = [cost_of(lambda: visitor.visit(f"?view=overview&run={RUN}"), collector.process) for _ in range(2)]
    costs = store_questions.ask(folder, RUN)
    seconds: dict[str, Cost | float] = {
        "collector start": collector.start,
        "list": store_questions.usual(costs[store_questions.PAGE]),
        "overview": overview[0],
        "overview again": overview[1],
        "diagnose": store_questions.usual(costs[store_questions.DIAGNOSE]),
        "retention": store_questions.expire(folder, KEPT_DAYS),
    }
    for what, cost in seconds.items():
        yield what, cost.processor_s if isinstance(cost, Cost) else cost, "s"


BENCHMARK = SizeBenchmark()


def main() -> int:
    """Print the figures. The exit status is 1 if a bound is broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="sizes whose names begin with this text")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    return report(BENCHMARK.title, BENCHMARK.run(given.only), as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
