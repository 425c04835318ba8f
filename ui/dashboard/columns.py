"""Convert the Arrow tables of answers to the records that pages and figures use."""

import json
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnose.model.span_columns import columns_of
from telemetry.records import topology_of
from telemetry.stages import STAGE_BY_CODE
from telemetry.tables import ENDED_WELL
from ui.dashboard.records import (
    Floats,
    Ints,
    Places,
    RankState,
    Series,
    SpanColumns,
    StepTimes,
)


def places(ranks: pa.Table) -> Places:
    """The grid, and where each of its ranks lives."""
    grid = topology_of(ranks)
    hosts, local_ranks = [""] * grid.world_size, [0] * grid.world_size
    columns = (ranks[name].to_pylist() for name in ("rank", "host", "local_rank"))
    for rank, host, local_rank in zip(*columns, strict=True):
        if rank < grid.world_size:
            hosts[rank], local_ranks[rank] = host, local_rank
    return Places(topology=grid, hosts=tuple(hosts), local_ranks=tuple(local_ranks))


def words(meta: str) -> dict[str, str]:
    """A run's free words; none where they cannot be read."""
    try:
        found = json.loads(meta or "{}")
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
    """Spans of stages that this version knows."""
    found = columns_of(spans)
    known = np.isin(found.stage, list(STAGE_BY_CODE))
    return found if known.all() else found.where(known)


def series_by_metric(samples: pa.Table) -> dict[str, Series]:
    found = {}
    for name in sorted(samples["metric"].unique().to_pylist()):
        rows = samples.filter(pc.field("metric") == name)
        found[name] = Series(metric=name, step=ints(rows, "step"), value=floats(rows, "value"))
    return found


def rank_states(heartbeats: pa.Table) -> Iterator[RankState]:
    for row in heartbeats.to_pylist():
        yield RankState(
            rank=row["rank"],
            step=row["step"],
            stage=STAGE_BY_CODE.get(row["stage"]),
            alive=bool(row["alive"]) and not row["ended"],  # the last heartbeat of a rank may be sent as it ends
            ended=row["ended"] == ENDED_WELL,
            dropped=row["dropped"],
        )


def by_step_and_rank(table: pa.Table, value: Floats, steps: Ints, num_ranks: int) -> Floats:
    """Sums of ``value`` by step and rank, shape [steps, ranks], NaN where there is none. ``steps`` must ascend."""
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
