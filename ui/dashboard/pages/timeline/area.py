"""Statistics of a marked area of the timeline: count and times of each stage."""

from dataclasses import dataclass

import numpy as np

from telemetry.stages import STAGE_BY_CODE, Stage
from ui.dashboard.records import SpanColumns
from ui.dashboard.view_state import Area


@dataclass(frozen=True, slots=True, kw_only=True)
class StageStatistics:
    """One stage within an area. Of spans that reach beyond it the part inside counts; times in nanoseconds."""

    stage: Stage
    count: int
    total_ns: int
    mean_ns: float
    longest_ns: int


def ranks_within(area: Area, ranks: tuple[int, ...]) -> tuple[int, ...]:
    """The ranks from the area's top row to its bottom one, of rows ``ranks`` from the top; none where a row is gone."""
    if area.top not in ranks or area.bottom not in ranks:
        return ()
    first, last = sorted((ranks.index(area.top), ranks.index(area.bottom)))
    return ranks[first : last + 1]


def statistics(spans: SpanColumns, area: Area, ranks: tuple[int, ...]) -> list[StageStatistics]:
    """By stage, the most time first. ``ranks``: those within the area; times of the area count from the earliest span
    of ``spans``."""
    if not len(spans):
        return []
    origin_ns = int(spans.start_ns.min())
    begin = np.maximum(spans.start_ns - origin_ns, area.first_ns)
    end = np.minimum(spans.start_ns - origin_ns + spans.duration_ns, area.last_ns)
    inside = np.flatnonzero(np.isin(spans.rank, ranks) & (end > begin) & (spans.stage != Stage.STEP))
    stage, length_ns = spans.stage[inside], (end - begin)[inside]
    found = [_of_stage(STAGE_BY_CODE[code], length_ns[stage == code]) for code in np.unique(stage).tolist()]
    return sorted(found, key=lambda one: -one.total_ns)


def _of_stage(stage: Stage, length_ns: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> StageStatistics:
    total = int(length_ns.sum())
    return StageStatistics(
        stage=stage,
        count=len(length_ns),
        total_ns=total,
        mean_ns=total / len(length_ns),
        longest_ns=int(length_ns.max()),
    )
