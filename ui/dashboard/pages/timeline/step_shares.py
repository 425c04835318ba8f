"""The time of a rank's step by class, the gaps that no span covers, and the statistics of a marked area.

compute   |=====|   |===|          each instant counts once, for the first active class of this order:
tp          |=|                    tensor, context and expert parallel, garbage collection, compute, pipeline,
pp-recv         |===|              data parallel, host
step      |-------------------|
                         ^^^^^ idle: nothing recorded

Compute is then replaced by compute time. The rest of the compute spans is waiting:

compute   |== 0 ==|..|= 1 =|..|    .. counts as data parallel if the rank waits for parameters. If processor time was
dp           |-------| |------|       measured, only as far as collectives of data parallelism run. The rest is off CPU.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from diagnose.model.compute_time import WORK_STAGES
from diagnose.model.operations import Bools
from diagnose.model.self_time import covered
from diagnose.model.view import Basis
from telemetry.stages import STAGE_BY_CODE, Stage, StageClass, Stream
from ui.dashboard.records import Ints, SpanColumns
from ui.dashboard.view_state import Area

SMALLEST_GAP = 0.002
"""A gap that is shorter than this share of the step is not drawn."""
PIPELINE = (Stream.PP_FORWARD, Stream.PP_BACKWARD)
INSIDE_COMPUTE = (Stream.TP, Stream.CP, Stream.EP)
"""Streams whose collectives always stop compute."""
COMPUTE = [stage for stage in Stage if stage.stage_class is StageClass.COMPUTE]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCompute:
    """Compute time of ranks in forward and backward of one step (``ui/dashboard/data/compute_times.py``)."""

    ns: Mapping[int, float]
    """Compute time by rank. A rank whose compute time is not known is left out."""
    basis: Basis


@dataclass(frozen=True, slots=True, kw_only=True)
class StepShares:
    """The times of one rank's step by class, in nanoseconds. Their sum is ``step_ns``."""

    rank: int
    step_ns: int
    basis: Basis | None
    """How compute time was measured. None if it is not known; then ``compute_ns`` contains waiting in compute spans."""
    compute_ns: int
    tensor_ns: int
    context_ns: int
    expert_ns: int
    pipeline_ns: int
    data_ns: int
    host_ns: int
    off_cpu_ns: int
    """Time in compute spans without processor time, beyond ``data_ns``."""
    idle_ns: int

    def by_name(self) -> dict[str, int]:
        """The times by the names that pages use."""
        return {
            "compute": self.compute_ns,
            "tp": self.tensor_ns,
            "cp": self.context_ns,
            "ep": self.expert_ns,
            "pp": self.pipeline_ns,
            "dp": self.data_ns,
            "host": self.host_ns,
            "off CPU": self.off_cpu_ns,
            "idle": self.idle_ns,
        }


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


def shares_by_rank(spans: SpanColumns, known: StepCompute | None = None) -> list[StepShares]:
    """The shares of each rank that has a ``step`` span, by rank. ``spans``: one step, ordered by rank and start.

    ``known``: compute time in this step. None if it is not known.
    """
    return [_shares(rank, mine, *bounds, known) for rank, mine, bounds in _by_step(spans)]


def gaps_by_rank(spans: SpanColumns) -> list[Gap]:
    """The gaps to draw, ordered by rank and start. ``spans``: some steps, ordered by rank and start."""
    return [gap for rank, mine, bounds in _by_step(spans) for gap in _gaps(rank, mine, *bounds)]


def ranks_within(area: Area, ranks: tuple[int, ...]) -> tuple[int, ...]:
    """The ranks between the outer rows of the area. ``ranks``: all rows from the top. Empty if a row is not shown."""
    if area.top not in ranks or area.bottom not in ranks:
        return ()
    first, last = sorted((ranks.index(area.top), ranks.index(area.bottom)))
    return ranks[first : last + 1]


def statistics(spans: SpanColumns, area: Area, ranks: tuple[int, ...]) -> list[StageStatistics]:
    """The statistics of each stage, the largest total first. ``ranks``: the ranks within the area. The times of the
    area count from the earliest span."""
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


def _by_step(spans: SpanColumns) -> Iterator[tuple[int, SpanColumns, tuple[int, int]]]:
    """For each ``step`` span: its rank, all spans of the rank, and begin and end of the step."""
    ranks, first = np.unique(spans.rank, return_index=True)
    ends = [*first, len(spans)][1:]
    for rank, begin, end in zip(ranks.tolist(), first, ends, strict=True):
        mine = spans.where(slice(begin, end))
        for at in np.flatnonzero(mine.stage == Stage.STEP).tolist():
            yield rank, mine, (int(mine.start_ns[at]), int(mine.end_ns[at]))


def _shares(rank: int, mine: SpanColumns, start_ns: int, end_ns: int, known: StepCompute | None) -> StepShares:
    inner, step_ns = mine.where(mine.stage != Stage.STEP), end_ns - start_ns
    begin, end = np.clip(inner.start_ns, start_ns, end_ns), np.clip(inner.end_ns, start_ns, end_ns)

    def covered_by(chosen: Bools) -> int:
        return covered_ns(begin[chosen], end[chosen])

    parts, so_far, counted = Counter[str](), np.zeros(len(inner), dtype=bool), 0
    for name, chosen in _classes(inner):
        so_far = so_far | chosen
        now_covered = covered_by(so_far)
        parts[name] += now_covered - counted
        counted = now_covered
    parts["idle_ns"] = step_ns - counted
    parts["off_cpu_ns"] = 0
    if known is None or rank not in known.ns:
        return StepShares(rank=rank, step_ns=step_ns, basis=None, **parts)
    _replace_compute(parts, inner, covered_by, known.ns[rank], known.basis)
    return StepShares(rank=rank, step_ns=step_ns, basis=known.basis, **parts)


def _classes(inner: SpanColumns) -> list[tuple[str, Bools]]:
    """Pairs of a time in ``StepShares`` and the spans that count for it, in the order in which an instant counts."""
    stream, stage = inner.stream, inner.stage
    return [
        ("tensor_ns", stream == Stream.TP),
        ("context_ns", stream == Stream.CP),
        ("expert_ns", stream == Stream.EP),
        ("host_ns", _collections(inner)),
        ("compute_ns", np.isin(stage, COMPUTE)),
        ("pipeline_ns", np.isin(stream, PIPELINE)),
        ("data_ns", stream == Stream.DP),
        ("host_ns", np.ones(len(inner), dtype=bool)),
    ]


def _collections(inner: SpanColumns) -> Bools:
    """Garbage collections that interrupt compute. A device computes on while its host collects garbage."""
    on_device = bool((inner.issue_ns[np.isin(inner.stage, WORK_STAGES)] > 0).any())
    return np.asarray((inner.stage == Stage.GC) & (not on_device))


def _replace_compute(
    parts: Counter[str], inner: SpanColumns, covered_by: Callable[[Bools], int], known_ns: float, basis: Basis
) -> None:
    """Replace the time in compute spans by compute time. The sum of ``parts`` does not change.

    ``known_ns``: compute time of forward and backward. ``covered_by``: time of the step that some of ``inner`` cover.
    """
    interrupts = np.isin(inner.stream, INSIDE_COMPUTE) | _collections(inner)
    compute, work, data = np.isin(inner.stage, COMPUTE), np.isin(inner.stage, WORK_STAGES), inner.stream == Stream.DP
    other = compute & ~work
    by_processor = basis is Basis.PROCESSOR_TIME
    if by_processor and (inner.cpu_ns[other] >= 0).all():
        other_ns = int(inner.cpu_ns[other].sum())
    else:
        other_ns = covered_by(interrupts | compute) - covered_by(interrupts | work)
    compute_ns = min(round(known_ns) + other_ns, sum(parts.values()))
    removed_ns = parts["compute_ns"] - compute_ns
    if removed_ns < 0:
        _shrink(parts, -removed_ns)
    elif by_processor:
        beside = covered_by(interrupts | compute) + covered_by(interrupts | data)
        beside -= covered_by(interrupts | compute | data) + covered_by(interrupts)
        parts["data_ns"] += min(removed_ns, beside)
        parts["off_cpu_ns"] = max(0, removed_ns - beside)
    else:
        parts["data_ns"] += removed_ns
    parts["compute_ns"] = compute_ns


def _shrink(parts: Counter[str], by_ns: int) -> None:
    """Reduce all parts except compute in proportion, by ``by_ns`` in total.

    Compute time can exceed the time in which no collective interrupts compute: it is an estimate if parameters are
    gathered, and processor time contains the work of the rank inside collectives.
    """
    others = [name for name in parts if name not in ("compute_ns", "idle_ns")]
    total = sum(parts.values()) - parts["compute_ns"]
    for name in others:
        parts[name] -= parts[name] * by_ns // total
    parts["idle_ns"] = total - by_ns - sum(parts[name] for name in others)


def covered_ns(begin: Ints, end: Ints) -> int:
    """Time covered by any of the intervals, which are ordered by ``begin``."""
    return int(covered(begin, end - begin).before_ns[-1])


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
    busy = _union(inner, start_ns, end_ns)
    edges = np.r_[start_ns, busy.ravel(), end_ns].reshape(-1, 2)
    long_enough = np.diff(edges, axis=1)[:, 0] > SMALLEST_GAP * (end_ns - start_ns)
    return [
        Gap(rank=rank, start_ns=int(begin), duration_ns=int(end - begin), cause=_cause(inner, int(begin), int(end)))
        for begin, end in edges[long_enough]
    ]


def _cause(inner: SpanColumns, begin_ns: int, end_ns: int) -> str:
    """The cause of a gap. A gap next to a transfer of the pipeline is a bubble. For other gaps, nothing was
    recorded."""
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
