"""Convert the Arrow tables of answers to the records that pages and figures use."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnose.model.operations import columns_of
from telemetry.stages import STAGE_BY_CODE
from telemetry.tables import ENDED_WELL
from ui.dashboard.records import Floats, Ints, RankState, Series, SpanColumns, StepTimes


def metadata(text: str) -> dict[str, str]:
    """The metadata of a run from its JSON text. Empty if it is not an object."""
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return {str(key): str(value) for key, value in found.items()} if isinstance(found, dict) else {}


def step_times(steps: pa.Table) -> StepTimes:
    return StepTimes(
        step=ints(steps, "step"),
        start_ns=ints(steps, "start_ns"),
        duration_ns=floats(steps, "duration_ns"),
        num_ranks=ints(steps, "num_ranks"),
        num_spans=ints(steps, "num_spans"),
    )


def span_columns(spans: pa.Table) -> SpanColumns:
    """The spans of stages that this version knows."""
    columns = columns_of(spans)
    known = np.isin(columns.stage, list(STAGE_BY_CODE))
    return columns if known.all() else columns.where(known)


def series_by_metric(samples: pa.Table, attempt: int) -> dict[str, Series]:
    """The samples of each metric. ``attempt``: the attempt of all rows if the table has no such column."""
    series = {}
    for name in sorted(samples["metric"].unique().to_pylist()):
        rows = samples.filter(pc.field("metric") == name)
        has_attempt = "attempt" in rows.column_names
        series[name] = Series(
            metric=name,
            attempt=ints(rows, "attempt") if has_attempt else np.full(rows.num_rows, attempt, np.int64),
            step=ints(rows, "step"),
            at_ns=ints(rows, "at_ns"),
            value=floats(rows, "value"),
        )
    return series


def rank_states(heartbeats: pa.Table) -> list[RankState]:
    return [
        RankState(
            rank=row["rank"],
            step=row["step"],
            stage=STAGE_BY_CODE.get(row["stage"]),
            alive=bool(row["alive"]) and not row["ended"],  # a rank can send its last heartbeat while it ends
            ended=row["ended"] == ENDED_WELL,
            dropped=row["dropped"],
            at_ns=row["at_ns"],
            beat_ns=row["beat_ns"],
        )
        for row in heartbeats.to_pylist()
    ]


def by_step_and_rank(table: pa.Table, value: Floats, steps: Ints, num_ranks: int) -> Floats:
    """Sums of ``value`` by step and rank, shape [steps, ranks], NaN without a row. ``steps`` must be ascending."""
    row, rank = np.searchsorted(steps, ints(table, "step")), ints(table, "rank")
    known = (row < len(steps)) & (rank < num_ranks)
    cell = row[known] * num_ranks + rank[known]
    total = np.bincount(cell, value[known], len(steps) * num_ranks)
    present = np.bincount(cell, minlength=len(steps) * num_ranks) > 0
    return np.where(present, total, np.nan).reshape(len(steps), num_ranks)


def ints(table: pa.Table, name: str) -> Ints:
    return np.asarray(table[name].to_numpy(), dtype=np.int64)


def floats(table: pa.Table, name: str) -> Floats:
    return np.asarray(table[name].to_numpy(), dtype=np.float64)
