"""Open spans as rows of the picture. The axis fits the recorded work, not the time of the stall.

recorded   |== F0 ==| |= B0 =|
open                   |////////////////////////////////////////////////////  for hours
axis       |-- work ----------|room|
                                   ^ end_ns: recorded and open spans are cut here
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from telemetry.stages import Stage, StageClass
from ui.dashboard.pages.timeline.open_spans import NO_OPERATION, OpenSpan
from ui.dashboard.pages.timeline.selection import OneClock
from ui.dashboard.records import SPAN_COLUMNS, Ints, SpanColumns
from ui.dashboard.wording import clock, ranks_text

ROOM = 0.2
"""Length of the axis after the end of the work, as a share of the work in the unfinished step."""
LEAST_ROOM_NS = 100_000
SAME_NS = 1_000_000
"""The begin of an open stage and of its later record differ by less than this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRows:
    """Rows for the picture, on its clock."""

    rows: SpanColumns
    """Open stages, then unfinished steps (stage ``STEP``). They end at ``end_ns`` or with the process."""
    spans: tuple[OpenSpan, ...]
    """The open stages, in the order of ``rows``."""
    flow: Ints
    """For each row, the number of its collective, from 1, which is equal for its members. 0 if no other member is
    open."""
    waits: npt.NDArray[np.bool_]
    """Whether the rank is in communication, so that it waits."""
    end_ns: int


def with_open_rows(
    recorded: OneClock, opened: Sequence[OpenSpan], hosts: Sequence[str]
) -> tuple[OneClock, OpenRows | None]:
    """Recorded spans that are cut at the end of the axis, and the open spans. ``hosts``: the host of each rank."""
    if not opened:
        return recorded, None
    spans = recorded.spans

    def times(values: Sequence[int]) -> Ints:
        at = (recorded.at_reference(value, hosts[span.rank]) for span, value in zip(opened, values, strict=True))
        return np.array([*at], dtype=np.int64)

    begin = times([span.since_ns for span in opened])
    step_begin = times([span.step_since_ns or span.since_ns for span in opened])
    gone = times([span.ended_ns or span.seen_ns for span in opened])
    seen_ns = int(times([span.seen_ns for span in opened]).max())
    newest = max(span.step for span in opened)
    axis = _axis(spans, newest, begin, int(step_begin.min()), seen_ns)
    until = np.where([bool(span.ended_ns) for span in opened], np.minimum(gone, axis.end_ns), axis.end_ns)
    # A stage that began after the axis is drawn at its end.
    begin = np.clip(begin, axis.origin_ns, (axis.work_ns + axis.end_ns) // 2)
    step_begin = np.clip(step_begin, axis.origin_ns, axis.work_ns)
    inner = [at for at, span in enumerate(opened) if span.stage is not Stage.STEP]
    steps = [at for at, span in enumerate(opened) if span.step_since_ns and span.step == newest]
    stages = [*(opened[at].stage for at in inner), *(Stage.STEP for _ in steps)]
    rows = _rows(spans, [opened[at] for at in (*inner, *steps)], stages)
    starts = np.concatenate([begin[inner], step_begin[steps]])
    rows = replace(rows, start_ns=starts, duration_ns=np.maximum(until[[*inner, *steps]] - starts, 1))
    cut = replace(recorded, spans=_cut(spans, axis.end_ns, seen_ns, rows))
    chosen = tuple(opened[at] for at in inner)
    waits = np.array([stage.stage_class is StageClass.COMMUNICATION for stage in stages], dtype=bool)
    return cut, OpenRows(rows=rows, spans=chosen, flow=_flow(chosen, len(rows)), waits=waits, end_ns=axis.end_ns)


class _Axis(NamedTuple):
    origin_ns: int
    work_ns: int
    """End of the work: the last record, or the begin of the last open stage soon after it."""
    end_ns: int


def _axis(spans: SpanColumns, newest: int, begin: Ints, step_ns: int, seen_ns: int) -> _Axis:
    """The axis of the picture. ``newest``: the unfinished step. ``step_ns``: the begin of that step. ``begin``: the
    begins of the open stages. ``seen_ns``: when the agents last saw them open; spans that ended later were open
    then."""
    if not len(spans):
        origin_ns, work_ns = min(step_ns, int(begin.min())), int(begin.max())
        return _Axis(origin_ns, work_ns, work_ns + max(round(ROOM * (work_ns - origin_ns)), LEAST_ROOM_NS))
    origin_ns, of_step = int(spans.start_ns.min()), spans.start_ns[spans.step == newest]
    recorded_ns = int(spans.end_ns[spans.end_ns <= seen_ns].max(initial=origin_ns))
    began_ns = int(of_step.min()) if len(of_step) else origin_ns
    soon = begin[begin <= recorded_ns + max(recorded_ns - began_ns, LEAST_ROOM_NS)]
    work_ns = max(recorded_ns, int(soon.max(initial=origin_ns)))
    return _Axis(origin_ns, work_ns, work_ns + max(round(ROOM * (work_ns - began_ns)), LEAST_ROOM_NS))


def _rows(recorded: SpanColumns, opened: Sequence[OpenSpan], stages: Sequence[Stage]) -> SpanColumns:
    """Rows for open stages, without times. The number of a row is the last number of its rank plus 1."""
    last = {rank: int(recorded.seq[recorded.rank == rank].max(initial=-1)) for rank in {span.rank for span in opened}}
    columns = {name: np.full(len(opened), -1, dtype=np.int64) for name in SPAN_COLUMNS}
    columns |= {name: np.zeros(len(opened), dtype=np.int64) for name in ("op_seq", "issue_ns", "size_bytes")}
    columns["rank"] = np.array([span.rank for span in opened], dtype=np.int64)
    columns["seq"] = np.array([last[span.rank] + 1 for span in opened], dtype=np.int64)
    columns["step"] = np.array([span.step for span in opened], dtype=np.int64)
    columns["stage"] = np.array([int(stage) for stage in stages], dtype=np.int64)
    columns["stream"] = np.array([int(stage.stream) for stage in stages], dtype=np.int64)
    return SpanColumns(**columns)


def _cut(spans: SpanColumns, end_ns: int, seen_ns: int, opened: SpanColumns) -> SpanColumns:
    """Recorded spans up to the end of the axis. If an error ended an open stage later, its record is left out."""
    later = spans.end_ns > seen_ns
    again = np.zeros(len(spans), dtype=bool)
    for rank, stage, start_ns in zip(opened.rank, opened.stage, opened.start_ns, strict=True):
        again |= (spans.rank == rank) & (spans.stage == stage) & (np.abs(spans.start_ns - start_ns) < SAME_NS)
    kept = spans.where((spans.start_ns < end_ns) & ~(later & again))
    return replace(kept, duration_ns=np.minimum(kept.end_ns, end_ns) - kept.start_ns)


def _flow(opened: Sequence[OpenSpan], num_rows: int) -> Ints:
    places = [span.place for span in opened]
    shared = [place for place in dict.fromkeys(places) if place != NO_OPERATION and places.count(place) > 1]
    flow = np.zeros(num_rows, dtype=np.int64)
    flow[: len(places)] = [shared.index(place) + 1 if place in shared else 0 for place in places]
    return flow


def joined(first: SpanColumns, second: SpanColumns) -> SpanColumns:
    """The rows of ``first``, then those of ``second``."""
    both = {name: np.concatenate([getattr(first, name), getattr(second, name)]) for name in SPAN_COLUMNS}
    return SpanColumns(**both)


def open_lines(span: OpenSpan) -> list[str]:
    """Lines about an open span for the text at the pointer."""
    operation = [f"in {span.operation}"] if span.operation else []
    waits = [f"waits for rank{'s' * (len(span.waits_for) > 1)} {ranks_text(span.waits_for)}"] if span.waits_for else []
    return [f"open since {clock(span.since_ns)}, {span.lasts}", *operation, *waits]
