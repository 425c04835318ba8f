"""Wide queries are answered from roll-ups and narrow queries from spans, with the same results."""

from collections.abc import Iterator
from typing import Any

import pytest

from telemetry.stages import Stage
from telemetry.stores.cluster import FIRST_MODERN, statements
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import Query, StoreReader
from telemetry.stores.migrations import SCHEMA
from telemetry.stores.queries import (
    HeatCells,
    Lanes,
    LastSteps,
    RankStageMeans,
    RankStageStats,
    RunFirstSteps,
    Runs,
    RunStageTimes,
    RunSteps,
    RunWallTimes,
    Spans,
    StageCounts,
    StageSteps,
    StageTotals,
    Steps,
    StragglerScan,
)
from tests.benchmarks.made_spans import MadeJob
from tests.deadline import until
from tests.each_case import each_case
from tests.memory_store import memory_store
from tests.telemetry.made_rows import insert

RUN: dict[str, Any] = {"run_id": "run", "attempt": 0}
JOB = MadeJob(num_ranks=64, num_steps=110, slow_rank=9)
WIDE: dict[str, Any] = {**RUN, "first_step": 0, "last_step": 99}
CELLS: dict[str, Any] = {**WIDE, "stage": int(Stage.BACKWARD_COMPUTE), "num_ranks": 64, "max_rows": 64}
ROLLED_UP: tuple[tuple[Query, str], ...] = (
    (Runs(), "by_window"),
    (Runs(run_ids=("run",)), "by_window"),
    (RunSteps(run_ids=("run",)), "by_window"),
    (RunWallTimes(run_ids=("run",)), "by_window"),
    (RunStageTimes(run_ids=("run",), stage=int(Stage.FORWARD_COMPUTE)), "by_step"),
    (StageCounts(**RUN), "by_window"),
    (LastSteps(**RUN), "by_window"),
    (RankStageMeans(**WIDE), "by_window"),
    (HeatCells(**CELLS, max_columns=2), "by_window"),
    (HeatCells(**CELLS, max_columns=100), "by_step"),
    (StragglerScan(**WIDE), "by_step"),
    (StageTotals(**WIDE), "by_step"),
    (RankStageStats(**WIDE), "by_step"),
    (StageCounts(**WIDE), "by_step"),
    (StageSteps(**WIDE), "by_step"),
)
ROLLUPS = ("by_step", "by_window")


@pytest.fixture(scope="module")
def rolled_up() -> Iterator[EmbeddedStore]:
    with memory_store() as store:
        for block in JOB.blocks(40):
            insert(store, "spans", block, **RUN)
        yield store


def plan_of(store: EmbeddedStore, query: Query, *, settings: str = "") -> str:
    rows = store.query(f"EXPLAIN {settings} {query.sql()}", query.parameters())
    return "\n".join(rows["explain"].to_pylist())


@each_case(("query", "rollup"), ROLLED_UP)
def test_wide_query_is_answered_from_a_roll_up(rolled_up: EmbeddedStore, query: Query, rollup: str) -> None:
    assert f"ReadFromMergeTree ({rollup})" in plan_of(rolled_up, query)


def test_means_read_whole_windows_from_one_roll_up_and_the_rest_from_the_other(rolled_up: EmbeddedStore) -> None:
    plan = plan_of(rolled_up, RankStageMeans(**{**WIDE, "first_step": 3}))
    assert all(f"ReadFromMergeTree ({rollup})" in plan for rollup in ROLLUPS)


def test_the_newest_steps_are_read_from_the_end_of_the_table(rolled_up: EmbeddedStore) -> None:
    query = Steps(**RUN, newest=10)
    limit = "LIMIT %(newest)s"
    inner = query.sql().split("step GLOBAL IN (")[1].split(limit)[0] + limit
    rows = rolled_up.query(f"EXPLAIN actions = 1 {inner}", query.parameters())
    assert "InReverseOrder" in "".join(rows["explain"].to_pylist())


def test_straggler_scan_finds_the_slow_rank_in_every_step(rolled_up: EmbeddedStore) -> None:
    rows = StoreReader(rolled_up).read(StragglerScan(**WIDE, min_ratio=1.2)).to_pylist()
    compute = {int(Stage.FORWARD_COMPUTE), int(Stage.BACKWARD_COMPUTE)}
    assert {(row["stage"], row["step"]) for row in rows} == {(stage, step) for stage in compute for step in range(100)}
    assert {row["slowest_rank"] for row in rows} == {JOB.slow_rank}


def test_answers_are_the_same_before_and_after_roll_ups_are_built() -> None:
    """As in an upgrade of a database that contains spans."""
    queries = [
        *(query for query, _ in ROLLED_UP),
        RunFirstSteps(run_ids=("run",)),
        Steps(**RUN, newest=3),
        Lanes(**WIDE),
        Spans(**WIDE, longest=2),
    ]
    store = EmbeddedStore()
    store.migrate()
    for rollup in ROLLUPS:
        store._execute(f"ALTER TABLE spans DROP PROJECTION {rollup}")
    for block in MadeJob(num_ranks=16, num_steps=110, slow_rank=9).blocks(40):
        insert(store, "spans", block, **RUN)
    before = [StoreReader(store).read(query) for query in queries]
    assert "by_" not in plan_of(store, StragglerScan(**WIDE))
    for statement in statements((SCHEMA / "0006_rollups.sql").read_text(), FIRST_MODERN):
        store._execute(statement)
    until(lambda: is_rolled_up(store), what="roll-ups of what was stored")
    assert "ReadFromMergeTree (by_step)" in plan_of(store, StragglerScan(**WIDE))
    for query, answer in zip(queries, before, strict=True):
        assert StoreReader(store).read(query).equals(answer), type(query)
    store.close()


def is_rolled_up(store: EmbeddedStore) -> bool:
    of_table = "table = 'spans' AND database = currentDatabase()"
    return not store.query(f"SELECT 1 FROM system.mutations WHERE {of_table} AND NOT is_done").num_rows


def test_an_old_server_gets_no_roll_ups() -> None:
    assert statements((SCHEMA / "0006_rollups.sql").read_text(), (18, 16)) == []
