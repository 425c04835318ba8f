"""Columns sent to a server as raw bytes arrive unchanged, compressed or not."""

import itertools
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from telemetry.stores import driver
from telemetry.stores.interface import Store
from telemetry.stores.open import open_store
from tests.clickhouse_server import ClickHouseServer
from tests.telemetry.made_rows import made, numbered_spans

pytestmark = pytest.mark.clickhouse

_numbers = itertools.count(1)
RUNS = ("run", "läuft" * 30, "x" * 127, "y" * 128, "it's; -- \\ \n\0")
"""Lengths that take one byte and two bytes, and bytes that are not letters."""


@pytest.fixture(params=["plain", "packed"])
def on_the_wire(
    request: pytest.FixtureRequest, clickhouse_server: ClickHouseServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Store]:
    if request.param == "packed":
        monkeypatch.setattr(driver, "is_loopback", lambda _: False)
    store = open_store(clickhouse_server.url(f"native_block_{next(_numbers)}"))
    yield store
    store.close()


def of_run(rows: pa.Table, run_id: str) -> pa.Table:
    """Add the run as the collector does: a dictionary column with one text."""
    numbers = pa.array(np.zeros(rows.num_rows, np.int8))
    return rows.append_column("run_id", pa.DictionaryArray.from_arrays(numbers, [run_id])).append_column(
        "attempt", pa.array([3] * rows.num_rows, pa.uint32())
    )


def test_numbers_and_run_names_of_several_runs_arrive_unchanged(on_the_wire: Store) -> None:
    blocks = [of_run(numbered_spans(1000 * number, 200 + number), run_id) for number, run_id in enumerate(RUNS)]
    on_the_wire.insert("spans", pa.concat_tables(blocks))
    names = blocks[0].column_names
    for run_id, sent in zip(RUNS, blocks, strict=True):
        sql = f"SELECT {', '.join(names)} FROM spans WHERE run_id = %(run_id)s ORDER BY seq"
        assert on_the_wire.query(sql, {"run_id": run_id}).to_pylist() == sent.to_pylist()


def test_distinct_texts_and_floats_arrive_unchanged(on_the_wire: Store) -> None:
    rows = made("samples", [{"seq": seq, "metric": f"metric {seq}", "value": seq / 7} for seq in range(50)])
    on_the_wire.insert("samples", of_run(rows, "run"))
    answer = on_the_wire.query("SELECT metric, value FROM samples ORDER BY seq")
    assert answer.to_pylist() == rows.select(["metric", "value"]).to_pylist()


def test_extreme_values_of_every_integer_column_arrive_unchanged(on_the_wire: Store) -> None:
    extremes = {
        "rank": 2**32 - 1, "seq": 2**63 - 1, "stage": 255, "microbatch": -(2**15), "peer": -(2**31),
        "start_ns": -(2**63), "duration_ns": 2**63 - 1, "size_bytes": 2**64 - 1,
    }  # fmt: skip
    on_the_wire.insert("spans", of_run(made("spans", [extremes]), "run"))
    assert on_the_wire.query(f"SELECT {', '.join(extremes)} FROM spans").to_pylist() == [extremes]
