"""The time of a rank's step by class, the gaps that no span covers, and the statistics of a marked area.

compute   |=====|   |===|          each instant counts once, for the first active class of this order:
tp          |=|                    tensor, context and expert parallel, compute, pipeline, data parallel, host
pp-recv         |===|
step      |-------------------|
                         ^^^^^ idle: nothing recorded
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from telemetry.stages import STAGE_BY_CODE, Stage, StageClass, Stream
from ui.dashboard.records import Ints, SpanColumns
from ui.dashboard.view_state import Area

SMALLEST_GAP = 0.002
"""Share of the step. A shorter gap is not drawn."""
PIPELINE = (Stream.PP_FORWARD, Stream.PP_BACKWARD)
COMPUTE = [stage for stage in Stage if stage.stage_class is StageClass.COMPUTE]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepShares:
    """The times of one rank's step by class, in nanoseconds. Their sum is ``step_ns``."""

    rank: int
    step_ns: int
    compute_ns: int
    tensor_ns: int
    context_ns: int
    expert_ns: int
    pipeline_ns: int
    data_ns: int
    host_ns: int
    idle_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A part of a rank's step without a span."""

    rank: int
    start_ns: int
    duration_ns: int
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StageStatistics:
    """One stage within an area. A span that crosses the edge counts with the part inside. Times in nanoseconds."""

    stage: Stage
    count: int
    total_ns: int
    mean_ns: float
    longest_ns: int


def shares_by_rank(spans: SpanColumns) -> list[StepShares]:
    """The shares of each rank that has a ``step`` span, by rank. ``spans``: one step, ordered by rank and start."""
    return [_shares(rank, mine, *bounds) for rank, mine, bounds in _by_rank(spans)]


def gaps_by_rank(spans: SpanColumns) -> list[Gap]:
    """The gaps to draw, ordered by rank and start. ``spans``: one step, ordered by rank and start."""
    return [gap for rank, mine, bounds in _by_rank(spans) for gap in _gaps(rank, mine, *bounds)]


def ranks_within(area: Area, ranks: tuple[int, ...]) -> tuple[int, ...]:
    """The ranks between the outer rows of the area. ``ranks``: all rows from the top. Empty if a row is not shown."""
    if area.top not in ranks or area.bottom not in ranks:
        return ()
    first, last = sorted((ranks.index(area.top), ranks.index(area.bottom)))
    return ranks[first : last + 1]


def statistics(spans: SpanColumns, area: Area, ranks: tuple[int, ...]) -> list[StageStatistics]:
    """By stage, the largest total first. ``ranks``: those within the area. Its times count from the earliest span."""
    if not len(spans):
        return []
    origin_ns = int(spans.start_ns.min())
    begin = np.maximum(spans.start_ns - origin_ns, area.first_ns)
    end = np.minimum(spans.end_ns - origin_ns, area.last_ns)
    inside = np.flatnonzero(np.isin(spans.rank, ranks) & (end > begin) & (spans.stage != Stage.STEP))
    stage, length_ns = spans.stage[inside], (end - begin)[inside]
    found = [_of_stage(STAGE_BY_CODE[code], length_ns[stage == code]) for code in np.unique(stage).tolist()]
    return sorted(found, key=lambda row: -row.total_ns)


def _of_stage(stage: Stage, length_ns: Ints) -> StageStatistics:
    total = int(length_ns.sum())
    return StageStatistics(
        stage=stage,
        count=len(length_ns),
        total_ns=total,
        mean_ns=total / len(length_ns),
        longest_ns=int(length_ns.max()),
    )


def _by_rank(spans: SpanColumns) -> Iterator[tuple[int, SpanColumns, tuple[int, int]]]:
    """The spans of each rank that has a ``step`` span, and begin and end of that step."""
    ranks, first = np.unique(spans.rank, return_index=True)
    ends = [*first, len(spans)][1:]
    for rank, begin, end in zip(ranks.tolist(), first, ends, strict=True):
        mine = spans.where(slice(begin, end))
        step = np.flatnonzero(mine.stage == Stage.STEP)
        if len(step):
            yield rank, mine, (int(mine.start_ns[step[0]]), int(mine.end_ns[step[0]]))


def _shares(rank: int, mine: SpanColumns, start_ns: int, end_ns: int) -> StepShares:
    stream, inner = mine.stream, mine.stage != Stage.STEP
    compute = np.isin(mine.stage, COMPUTE)
    inside = (stream == Stream.TP, stream == Stream.CP, stream == Stream.EP)
    classes = (*inside, compute, np.isin(stream, PIPELINE), stream == Stream.DP, inner)
    begin, end = np.clip(mine.start_ns, start_ns, end_ns), np.clip(mine.end_ns, start_ns, end_ns)
    so_far, counted, lengths = np.zeros(len(mine), dtype=bool), 0, []
    for chosen in classes:
        so_far |= chosen & inner
        covered = _covered_ns(begin[so_far], end[so_far])
        lengths.append(covered - counted)
        counted = covered
    tensor, context, expert, own, pipeline, data, host = lengths
    return StepShares(
        rank=rank,
        step_ns=end_ns - start_ns,
        compute_ns=own,
        tensor_ns=tensor,
        context_ns=context,
        expert_ns=expert,
        pipeline_ns=pipeline,
        data_ns=data,
        host_ns=host,
        idle_ns=end_ns - start_ns - counted,
    )


def _covered_ns(begin: Ints, end: Ints) -> int:
    """Time covered by any of the intervals, which are ordered by ``begin``."""
    if not len(begin):
        return 0
    reach = np.maximum.accumulate(end)
    return int(reach[0] - begin[0] + np.maximum(reach[1:] - np.maximum(reach[:-1], begin[1:]), 0).sum())


def _union(spans: SpanColumns, start_ns: int, end_ns: int) -> npt.NDArray[np.int64]:
    """Clipped intervals that are covered by any span: rows of start and end, ascending."""
    begin = np.clip(spans.start_ns, start_ns, end_ns)
    end = np.clip(spans.end_ns, start_ns, end_ns)
    order = np.argsort(begin, kind="stable")
    begin, reach = begin[order], np.maximum.accumulate(end[order]) if len(end) else end
    if not len(begin):
        return np.empty((0, 2), dtype=np.int64)
    fresh = np.flatnonzero(np.r_[True, begin[1:] > reach[:-1]])
    last = np.r_[fresh[1:] - 1, len(begin) - 1]
    return np.column_stack([begin[fresh], reach[last]])


def _gaps(rank: int, mine: SpanColumns, start_ns: int, end_ns: int) -> list[Gap]:
    inner = mine.where(mine.stage != Stage.STEP)
    covered = _union(inner, start_ns, end_ns)
    edges = np.r_[start_ns, covered.ravel(), end_ns].reshape(-1, 2)
    long_enough = np.diff(edges, axis=1)[:, 0] > SMALLEST_GAP * (end_ns - start_ns)
    return [
        Gap(rank=rank, start_ns=int(begin), duration_ns=int(end - begin), cause=_cause(inner, int(begin), int(end)))
        for begin, end in edges[long_enough]
    ]


def _cause(inner: SpanColumns, begin_ns: int, end_ns: int) -> str:
    """A gap next to a transfer of the pipeline is a bubble. Otherwise nothing was recorded there."""
    before, after = _touching(inner, inner.end_ns, begin_ns), _touching(inner, inner.start_ns, end_ns)
    if before is None or after is None:
        return "nothing recorded at the edge of the step"
    if before.stream in PIPELINE or after.stream in PIPELINE:
        return f"pipeline bubble between {before.label} and {after.label}"
    return f"nothing recorded between {before.label} and {after.label}"


def _touching(inner: SpanColumns, edges_ns: Ints, at_ns: int) -> Stage | None:
    """The stage of a span whose edge lies at ``at_ns``; the innermost one if there are several."""
    rows = np.flatnonzero(edges_ns == at_ns)
    if not len(rows):
        return None
    return STAGE_BY_CODE[int(inner.stage[rows[np.argmin(inner.duration_ns[rows])]])]
