"""Size of a stored span: in the embedded engine, and as Parquet of the same rows in the same order.

python -m tests.benchmarks.storage [--json]

Bytes on disk of merged parts, roll-ups, marks and checksums included, over the number of spans. Spans are made with
realistic jitter in nanoseconds (``made_spans.py``), and once by the project's simulator.
"""

import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from diagnose.simulate.plan import SimulatedRun
from diagnose.simulate.run import simulate
from diagnose.simulate.store import spans_table
from telemetry.stores.embedded import EmbeddedStore
from telemetry.tables import SPANS
from telemetry.topology import Topology
from tests.benchmarks.figures import Figure, report
from tests.benchmarks.made_spans import MadeJob, Recorded
from tests.telemetry.made_rows import insert

BOUND_BYTES = 6.5
NUM_STEPS = 50
STEPS_A_BLOCK = 10
SIMULATED = SimulatedRun(topology=Topology(dp=16, pp=4, tp=4), num_steps=100, clock_offset_ms=5)
ORDER = [(name, "ascending") for name in ("stage", "step", "rank", "start_ns")]
RIVAL = "Parquet, zstd"
LEAST_SHOWN = 0.005
PARTS = "table = 'spans' AND active AND database = currentDatabase()"


@dataclass(frozen=True, slots=True, kw_only=True)
class AtRest:
    """Bytes per span."""

    num_spans: int
    whole: float
    columns: dict[str, float]
    rollups: dict[str, float]


class StorageBenchmark:
    """Runs with different clock records, stored and merged."""

    title = "Stored bytes per span"
    command = "python -m tests.benchmarks.storage"

    def run(self) -> list[Figure]:
        made = {kind: MadeJob(num_steps=NUM_STEPS, recorded=kind) for kind in Recorded}
        plain = [*made[Recorded.TIMES].blocks(STEPS_A_BLOCK)]
        stored = _stored(plain)
        figures = [
            _whole("one span, including roll-ups", stored, plain, bound=BOUND_BYTES),
            *_parts(stored),
            Figure(name="Parquet with delta-packed integers", value=_parquet(plain, delta=True), unit="B"),
        ]
        for kind, column in ((Recorded.PROCESSOR_TIME, "cpu_ns"), (Recorded.ON_DEVICE, "issue_ns")):
            blocks = [*made[kind].blocks(STEPS_A_BLOCK)]
            of_kind = _stored(blocks)
            figures += [
                _whole(f"with {kind.value}", of_kind, blocks),
                Figure(name=f"its column {column}", value=of_kind.columns[column], unit="B"),
            ]
        simulated = [spans_table(simulate(SIMULATED))]
        return [*figures, _whole("a simulated run of 256 ranks, with processor time", _stored(simulated), simulated)]


def _whole(name: str, stored: AtRest, blocks: list[pa.Table], bound: float | None = None) -> Figure:
    rival, note = _parquet(blocks), f"{stored.num_spans:,} spans"
    return Figure(name=name, value=stored.whole, unit="B", bound=bound, rival=RIVAL, rival_value=rival, note=note)


def _parts(stored: AtRest) -> Iterator[Figure]:
    for kind, sizes in (("column", stored.columns), ("roll-up", stored.rollups)):
        for name, size in sorted(sizes.items(), key=lambda item: -item[1]):
            if size >= LEAST_SHOWN:
                yield Figure(name=f"{kind} {name}", value=size, unit="B")


def _stored(blocks: Iterable[pa.Table]) -> AtRest:
    with _opened() as store:
        for block in blocks:
            insert(store, "spans", block)
        store._execute("OPTIMIZE TABLE spans FINAL")
        return at_rest(store)


def at_rest(store: EmbeddedStore) -> AtRest:
    """The sizes of the stored spans."""
    parts = f"SELECT sum(bytes_on_disk) AS bytes, sum(rows) AS num FROM system.parts WHERE {PARTS}"
    (whole,) = store.query(parts).to_pylist()
    columns = (
        f"SELECT column AS name, sum(column_data_compressed_bytes) AS bytes FROM system.parts_columns"
        f" WHERE {PARTS} GROUP BY name"
    )
    rollups = f"SELECT name, sum(bytes_on_disk) AS bytes FROM system.projection_parts WHERE {PARTS} GROUP BY name"
    sizes = [
        {row["name"]: row["bytes"] / whole["num"] for row in store.query(sql).to_pylist()} for sql in (columns, rollups)
    ]
    return AtRest(num_spans=whole["num"], whole=whole["bytes"] / whole["num"], columns=sizes[0], rollups=sizes[1])


@contextmanager
def _opened() -> Iterator[EmbeddedStore]:
    with tempfile.TemporaryDirectory(prefix="rankscope-storage-") as folder:
        store = EmbeddedStore(Path(folder))
        try:
            store.migrate()
            yield store
        finally:
            store.close()


def _parquet(blocks: list[pa.Table], *, delta: bool = False) -> float:
    """The same rows in the order of the table, in one file."""
    rows = pa.concat_tables(blocks).sort_by(ORDER)
    packed: dict[str, object] = {"use_dictionary": False, "column_encoding": _delta_packed()} if delta else {}
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, compression="zstd", **packed)
    return float(sink.getvalue().size / rows.num_rows)


def _delta_packed() -> dict[str, str]:
    """Columns with the delta encoding of Parquet: integers of 32 and 64 bits."""
    wide = (field.name for field in SPANS if field.type.bit_width >= 32)
    return dict.fromkeys(wide, "DELTA_BINARY_PACKED")


BENCHMARK = StorageBenchmark()

if __name__ == "__main__":
    sys.exit(report(BENCHMARK.title, BENCHMARK.run(), as_json="--json" in sys.argv[1:]))
