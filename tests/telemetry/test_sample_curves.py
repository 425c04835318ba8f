"""Queries reduce the samples and marks of many steps to the columns of a chart."""

import math

from telemetry.stores.interface import Store, StoreReader
from telemetry.stores.queries import MarkColumns, SampleCurves, SampleMedians, SampleNames
from tests.telemetry.made_rows import insert, made

NAN, INFINITE = math.nan, math.inf


def curve(store: Store, column_steps: int) -> list[tuple[int, float]]:
    asked = SampleCurves(run_id="run", attempts=(0,), metrics=("loss",), column_steps=column_steps)
    rows = StoreReader(store).read(asked).to_pylist()
    assert {row["metric"] for row in rows} <= {"loss"}
    return [(row["step"], row["value"]) for row in rows]


def fill(store: Store, values: list[float], *, rank: int = 1, metric: str = "loss") -> None:
    rows = [
        {"rank": rank, "seq": step, "step": step, "metric": metric, "value": value} for step, value in enumerate(values)
    ]
    insert(store, "samples", made("samples", rows))


def test_chart_column_keeps_its_first_last_lowest_and_highest_value(store: Store) -> None:
    fill(store, [5, 4, 9, 1, 6, 5, 7, 7, 7, 7])
    fill(store, [100] * 10, rank=0)
    fill(store, [100] * 10, metric="mfu")
    assert curve(store, 5) == [(0, 5), (2, 9), (3, 1), (4, 6), (5, 5), (6, 7), (9, 7)]


def test_chart_column_keeps_the_first_value_that_is_not_finite(store: Store) -> None:
    fill(store, [5, 4, NAN, INFINITE, 6, NAN, NAN, NAN, NAN, NAN])
    found = curve(store, 5)
    assert [step for step, _ in found] == [0, 1, 2, 4, 5, 9]
    assert [step for step, value in found if not math.isfinite(value)] == [2, 5, 9]


def test_chart_column_of_one_step_keeps_its_value_once(store: Store) -> None:
    fill(store, [5, 4, 9])
    assert curve(store, 1) == [(0, 5), (1, 4), (2, 9)]


def test_chart_column_has_the_median_of_its_finite_values_at_its_middle_step(store: Store) -> None:
    fill(store, [5, 4, 9, NAN, 6, INFINITE, NAN, NAN, NAN, NAN, 2])
    fill(store, [100] * 10, rank=0)
    query = SampleMedians(run_id="run", attempts=(0, 3), metrics=("loss",), column_steps=5)
    rows = StoreReader(store).read(query).to_pylist()
    assert [(row["attempt"], row["step"], row["value"]) for row in rows] == [(0, 2, 6), (0, 10, 2)]


def test_metrics_are_listed_by_name_with_their_number_of_samples(store: Store) -> None:
    fill(store, [1, 2, 3], metric="z")
    fill(store, [1, 2], metric="a")
    names = [StoreReader(store).read(SampleNames(run_id="run", attempt=0, limit=limit)).to_pylist() for limit in (9, 1)]
    assert names[0] == [{"metric": "a", "samples": 2}, {"metric": "z", "samples": 3}]
    assert names[1] == names[0][:1]


def test_marks_of_many_ranks_are_grouped_by_name_and_time(store: Store) -> None:
    marks = [(rank, 100 + rank, "gc") for rank in range(8)] + [(3, 105, "restart"), (3, 990, "gc")]
    rows = [
        {"rank": rank, "seq": seq, "step": 7, "at_ns": at_ns, "name": name, "text": f"of {rank}"}
        for seq, (rank, at_ns, name) in enumerate(marks)
    ]
    insert(store, "marks", made("marks", rows))
    query = MarkColumns(run_id="run", attempts=(0,), column_ns=100)
    found = StoreReader(store).read(query).to_pylist()
    assert [(row["name"], row["at_ns"], row["marks"], row["ranks"], row["text"]) for row in found] == [
        ("gc", 100, 8, 8, "of 0"),
        ("restart", 105, 1, 1, "of 3"),
        ("gc", 990, 1, 1, "of 3"),
    ]
