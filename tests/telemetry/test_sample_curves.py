"""The values of a metric that a picture of many steps keeps."""

import math

from telemetry.stores.interface import Store, StoreReader
from telemetry.stores.queries import SampleCurves
from tests.telemetry.made_rows import insert, made

NAN, INFINITE = math.nan, math.inf


def curve(store: Store, column_steps: int) -> list[tuple[int, float]]:
    asked = SampleCurves(run_id="run", attempt=0, metrics=("loss",), column_steps=column_steps)
    rows = StoreReader(store).read(asked).to_pylist()
    assert {row["metric"] for row in rows} <= {"loss"}
    return [(row["step"], row["value"]) for row in rows]


def fill(store: Store, values: list[float], *, rank: int = 1, metric: str = "loss") -> None:
    rows = [
        {"rank": rank, "seq": step, "step": step, "metric": metric, "value": value} for step, value in enumerate(values)
    ]
    insert(store, "samples", made("samples", rows))


def test_a_column_keeps_its_first_last_lowest_and_highest_value(store: Store) -> None:
    fill(store, [5, 4, 9, 1, 6, 5, 7, 7, 7, 7])
    fill(store, [100] * 10, rank=0)
    fill(store, [100] * 10, metric="mfu")
    assert curve(store, 5) == [(0, 5), (2, 9), (3, 1), (4, 6), (5, 5), (6, 7), (9, 7)]


def test_a_column_keeps_the_first_value_that_is_no_finite_number(store: Store) -> None:
    fill(store, [5, 4, NAN, INFINITE, 6, NAN, NAN, NAN, NAN, NAN])
    found = curve(store, 5)
    assert [step for step, _ in found] == [0, 1, 2, 4, 5, 9]
    assert [step for step, value in found if not math.isfinite(value)] == [2, 5, 9]


def test_a_column_of_one_step_keeps_its_value_once(store: Store) -> None:
    fill(store, [5, 4, 9])
    assert curve(store, 1) == [(0, 5), (1, 4), (2, 9)]
