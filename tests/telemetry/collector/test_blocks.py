"""Batches are joined into one block in the order of the store. Their rows do not change."""

import numpy as np
import pyarrow as pa

from telemetry.collector.writer import one_block
from telemetry.stages import Stage
from telemetry.tables import SPANS
from telemetry.wire.codec import Batch
from tests.each_case import each_case
from tests.telemetry.made_rows import made

STAGES = (Stage.FORWARD_COMPUTE, Stage.BACKWARD_COMPUTE, Stage.OPTIMIZER)


def recorded(rank: int, steps: range, *, run_id: str = "run", attempt: int = 0) -> Batch:
    """Rows in the order of recording: step by step, stage by stage, two microbatches each."""
    moments = [(step, stage, microbatch) for step in steps for stage in STAGES for microbatch in range(2)]
    rows = made(
        "spans",
        (
            {"rank": rank, "seq": seq, "step": step, "stage": int(stage), "microbatch": microbatch, "start_ns": seq}
            for seq, (step, stage, microbatch) in enumerate(moments)
        ),
    )
    return Batch(table="spans", run_id=run_id, attempt=attempt, rows=rows)


def keys(block: pa.Table) -> list[tuple[object, ...]]:
    names = ("run_id", "attempt", "stage", "step", "rank", "start_ns")
    return list(zip(*(block[name].to_pylist() for name in names), strict=True))


@each_case("first_step", [0, 2**32 - 12])
@each_case("ranks", [(3, 1, 2), (70_000, 5, 2**32 - 1)])
def test_spans_of_all_batches_are_sorted_in_the_order_of_the_store(first_step: int, ranks: tuple[int, ...]) -> None:
    batches = [recorded(rank, range(first_step, first_step + 10)) for rank in ranks]
    block = one_block("spans", [(batch, batch.rows) for batch in batches])
    assert keys(block) == sorted(keys(block))
    assert block.num_rows == sum(batch.rows.num_rows for batch in batches)


def test_spans_of_distant_steps_are_sorted() -> None:
    batches = [recorded(0, range(5, 200_000, 70_000)), recorded(1, range(5))]
    assert keys(block := one_block("spans", [(batch, batch.rows) for batch in batches])) == sorted(keys(block))


def test_spans_are_sorted_by_run_and_attempt_and_each_chunk_holds_one_run_name() -> None:
    owners = [("b", 0), ("a", 1), ("b", 0), ("a", 0)]
    batches = [
        recorded(rank, range(3), run_id=run_id, attempt=attempt) for rank, (run_id, attempt) in enumerate(owners)
    ]
    block = one_block("spans", [(batch, batch.rows) for batch in batches])
    assert keys(block) == sorted(keys(block))
    assert all(len(chunk.dictionary) == 1 for chunk in block["run_id"].chunks)


def test_block_contains_every_row_unchanged() -> None:
    batch = recorded(4, range(50))
    shuffled = np.random.default_rng(0).permutation(batch.rows.num_rows)
    block = one_block("spans", [(batch, batch.rows.take(pa.array(shuffled)))])
    assert block.select(SPANS.names).sort_by("seq").equals(batch.rows)


def test_other_tables_keep_their_order() -> None:
    rows = made("marks", [{"rank": 1, "seq": 9, "step": 3}, {"rank": 0, "seq": 2, "step": 1}])
    block = one_block("marks", [(Batch(table="marks", run_id="run", attempt=0, rows=rows), rows)])
    assert block["seq"].to_pylist() == [9, 2]
