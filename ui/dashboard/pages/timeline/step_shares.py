"""The time of a rank's step by class, and the gaps that no span covers, with their cause.

compute   |=====|   |===|          each instant counts once, for the first active class of this order:
tp          |=|                    tensor parallel, compute, pipeline, data parallel, host
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

SMALLEST_GAP = 0.002
"""Share of the step below which a gap is not drawn."""
INSIDE = (Stream.TP, Stream.CP, Stream.EP)
"""Streams of collectives inside computes."""
PIPELINE = (Stream.PP_FORWARD, Stream.PP_BACKWARD)
COMPUTE = [stage for stage in Stage if stage.stage_class is StageClass.COMPUTE]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepShares:
    """Shares of one rank's step, in nanoseconds; they add up to ``step_ns``."""

    rank: int
    step_ns: int
    compute_ns: int
    tensor_ns: int
    pipeline_ns: int
    data_ns: int
    host_ns: int
    idle_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A stretch of a rank's step without a span."""

    rank: int
    start_ns: int
    duration_ns: int
    cause: str


def shares_by_rank(spans: SpanColumns) -> list[StepShares]:
    """Shares of each rank that has a ``step`` span, ascending by rank. ``spans`` holds one step, ordered by rank and
    start."""
    found = []
    for rank, mine in _by_rank(spans):
        bounds = _step_bounds(mine)
        if bounds is not None:
            found.append(_shares(rank, mine, *bounds))
    return found


def gaps_by_rank(spans: SpanColumns) -> list[Gap]:
    """Every gap worth drawing, by rank, then start. ``spans`` holds one step, ordered by rank and start."""
    found: list[Gap] = []
    for rank, mine in _by_rank(spans):
        bounds = _step_bounds(mine)
        if bounds is not None:
            found.extend(_gaps(rank, mine, *bounds))
    return found


def _by_rank(spans: SpanColumns) -> Iterator[tuple[int, SpanColumns]]:
    ranks, first = np.unique(spans.rank, return_index=True)
    ends = [*first, len(spans)][1:]
    for rank, begin, end in zip(ranks.tolist(), first, ends, strict=True):
        yield rank, spans.where(slice(begin, end))


def _step_bounds(mine: SpanColumns) -> tuple[int, int] | None:
    step = np.flatnonzero(mine.stage == Stage.STEP)
    if not len(step):
        return None
    start = int(mine.start_ns[step[0]])
    return start, start + int(mine.duration_ns[step[0]])


def _shares(rank: int, mine: SpanColumns, start_ns: int, end_ns: int) -> StepShares:
    stream, inner = mine.stream, mine.stage != Stage.STEP
    compute = np.isin(mine.stage, COMPUTE)
    classes = (np.isin(stream, INSIDE), compute, np.isin(stream, PIPELINE), stream == Stream.DP, inner)
    begin, end = np.clip(mine.start_ns, start_ns, end_ns), np.clip(mine.end_ns, start_ns, end_ns)
    so_far, counted, lengths = np.zeros(len(mine), dtype=bool), 0, []
    for chosen in classes:
        so_far |= chosen & inner
        covered = _covered_ns(begin[so_far], end[so_far])
        lengths.append(covered - counted)
        counted = covered
    tensor, own, pipeline, data, host = lengths
    return StepShares(
        rank=rank,
        step_ns=end_ns - start_ns,
        compute_ns=own,
        tensor_ns=tensor,
        pipeline_ns=pipeline,
        data_ns=data,
        host_ns=host,
        idle_ns=end_ns - start_ns - counted,
    )


def _covered_ns(begin: Ints, end: Ints) -> int:
    """Covered by any of the stretches, ordered by ``begin``: each adds what reaches beyond those before it."""
    if not len(begin):
        return 0
    reach = np.maximum.accumulate(end)
    return int(reach[0] - begin[0] + np.maximum(reach[1:] - np.maximum(reach[:-1], begin[1:]), 0).sum())


def _union(spans: SpanColumns, start_ns: int, end_ns: int) -> npt.NDArray[np.int64]:
    """Stretches covered by any of the spans, clipped: rows of start and end, ascending."""
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
    """A gap beside the pipeline's transfers, or between microbatches, is a bubble; else nobody recorded anything."""
    before = _touching(inner, inner.start_ns + inner.duration_ns, begin_ns)
    after = _touching(inner, inner.start_ns, end_ns)
    if before is None or after is None:
        return "nothing recorded at the edge of the step"
    if before.stream in PIPELINE or after.stream in PIPELINE:
        return f"pipeline bubble between {before.label} and {after.label}"
    return f"nothing recorded between {before.label} and {after.label}"


def _touching(inner: SpanColumns, edges_ns: Ints, at_ns: int) -> Stage | None:
    """The stage of a span whose edge lies at ``at_ns``; the innermost where several do."""
    rows = np.flatnonzero(edges_ns == at_ns)
    if not len(rows):
        return None
    return STAGE_BY_CODE[int(inner.stage[rows[np.argmin(inner.duration_ns[rows])]])]
