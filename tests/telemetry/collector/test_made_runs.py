"""Runs that benchmarks insert into a store have the same rows and roll-ups as runs that a collector received."""

import pyarrow as pa
import pytest

from telemetry.stores.embedded import EmbeddedStore
from telemetry.topology import Topology
from tests.benchmarks.many_runs import MadeRuns
from tests.memory_store import memory_store
from tests.telemetry.made_rows import of_run
from tests.telemetry.served import collecting

RUN = MadeRuns(names=("run",), topology=Topology(dp=2, tp=2), num_steps=120, first_step=30, attempt=2)
ROLL_UPS = """
SELECT name, sum(rows) AS num_rows FROM system.projection_parts
WHERE active AND table = 'spans' AND database = currentDatabase() GROUP BY name ORDER BY name
"""


def send(store: EmbeddedStore, run: MadeRuns) -> None:
    """Send the rows as agents do: ranks first, then batches of few steps of a rank."""
    tables = sorted(run.rows(), key=lambda entry: entry[0] != "ranks")
    folders = dict.fromkeys(range(run.topology.world_size), run.first_ns)
    with collecting(store) as client:
        for name, rows in tables:
            plain = rows.drop_columns(["run_id", "attempt", *["opened_ns"] * ("seq" in rows.column_names)])
            for batch in _batches(plain) if "seq" in plain.column_names else [plain]:
                client.post(name, of_run(batch, "run", run.attempt, folders))


def _batches(rows: pa.Table) -> list[pa.Table]:
    in_order = rows.sort_by([("rank", "ascending"), ("seq", "ascending")])
    return [in_order.slice(first, 500) for first in range(0, in_order.num_rows, 500)]


def contents(store: EmbeddedStore, table: str) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = store.query(f"SELECT * FROM {table} ORDER BY ALL").to_pylist()
    return rows


@pytest.fixture(scope="module")
def both() -> list[tuple[dict[str, list[dict[str, object]]], list[dict[str, object]]]]:
    """Tables and sizes of roll-ups: of a run that was inserted, and of the same run that was sent."""
    found = []
    for fill in (lambda store: RUN.store(store), lambda store: send(store, RUN)):
        with memory_store() as store:
            fill(store)
            store.database.execute("OPTIMIZE TABLE spans FINAL")
            tables = {name: contents(store, name) for name in ("spans", "samples", "heartbeats", "ranks")}
            found.append((tables, store.query(ROLL_UPS).to_pylist()))
    return found


def test_a_run_that_is_inserted_has_the_same_rows_as_a_run_that_is_sent(
    both: list[tuple[dict[str, list[dict[str, object]]], list[dict[str, object]]]],
) -> None:
    (inserted, _), (sent, _) = both
    assert {name: len(rows) for name, rows in inserted.items()} == {
        "spans": RUN.num_spans, "samples": 360, "heartbeats": 4, "ranks": 4,
    }  # fmt: skip
    assert inserted == sent


def test_a_run_that_is_inserted_has_the_same_roll_ups_as_a_run_that_is_sent(
    both: list[tuple[dict[str, list[dict[str, object]]], list[dict[str, object]]]],
) -> None:
    (_, inserted), (_, sent) = both
    assert inserted == sent
    assert {row["name"] for row in inserted} >= {"by_step", "by_window"}
