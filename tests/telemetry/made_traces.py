"""Traces in the form of the straggler analysis, created row by row."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

LAYOUT = "trial_name: made\nrun_id: 0\ndp_size: 2\ndsp_size: 1\npp_size: 2\ntp_size: 1\nvpp_size: 1\nworld_size: 4\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """A row of a trace."""

    optype: str = "forward-compute"
    dp_rank: int = 0
    stage: int = 0
    rank: int = -1
    """-1: computed from dp_rank and stage in a pipeline of two stages."""
    step: int = 1
    start_ts: float = 0.0
    duration: float = 0.25
    seq_id: int = 0
    mc: int = -1
    mb_id: int = -1


def table(ops: Sequence[Op]) -> pa.Table:
    """The columns, with the types of the published trace."""

    def column(name: str, kind: pa.DataType) -> pa.Array:
        return pa.array([getattr(op, name) for op in ops], kind)

    return pa.table(
        {
            "dp_rank": column("dp_rank", pa.int16()),
            "stage": column("stage", pa.int8()),
            "rank": pa.array([op.dp_rank * 2 + op.stage if op.rank < 0 else op.rank for op in ops], pa.int16()),
            "step": column("step", pa.int64()),
            "optype": column("optype", pa.string()).dictionary_encode(),
            "start_ts": column("start_ts", pa.float32()),
            "duration": column("duration", pa.float32()),
            "seq_id": column("seq_id", pa.int32()),
            "mc": column("mc", pa.int8()),
            "mb_id": column("mb_id", pa.int8()),
            "gmc": pa.repeat(pa.scalar(-1, pa.int16()), len(ops)),
        }
    )


def every_rank(*, steps: Sequence[int] = (1, 2), slow: float = 1.0) -> list[Op]:
    """Two operations and a transfer on each of 2 x 2 ranks in each step. ``slow``: factor of rank 3."""
    return [
        op
        for step in steps
        for dp_rank in range(2)
        for stage in range(2)
        for factor in [slow if (dp_rank, stage) == (1, 1) else 1.0]
        for op in (
            Op(dp_rank=dp_rank, stage=stage, step=step, duration=0.25 * factor, mc=0, mb_id=0),
            Op(dp_rank=dp_rank, stage=stage, step=step, start_ts=0.5, optype="forward-send", duration=0.125),
            Op(dp_rank=dp_rank, stage=stage, step=step, start_ts=1.0, optype="gc", duration=0.0),
        )
    ]


def save(folder: Path, rows: pa.Table | Sequence[Op], *, layout: str = LAYOUT, name: str = "made") -> Path:
    """Write ``trace-NAME.parquet`` and its layout into ``folder``. Return the path of the trace."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"meta-{name}.yaml").write_text(layout)
    path = folder / f"trace-{name}.parquet"
    pq.write_table(rows if isinstance(rows, pa.Table) else table(rows), path)
    return path
