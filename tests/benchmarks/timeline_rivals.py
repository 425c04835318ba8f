"""The same spans of a timeline for plotly and for the canvas of the dashboard. Each rank has a row."""

from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from telemetry.stages import STAGE_BY_CODE, Stage
from tests.benchmarks.made_spans import SPANS_A_STEP, MadeJob
from tests.ui.few_spans import buffer_of
from ui.dashboard.data.columns import span_columns
from ui.dashboard.figures.style import STAGE_COLOURS
from ui.dashboard.pages.timeline.ideal_strip import LANES, lane_of
from ui.dashboard.records import Floats, SpanColumns

NUM_RANKS = 64


def made_picture(num_spans: int) -> SpanColumns:
    """``num_spans`` spans of 64 ranks, from several steps one after another."""
    num_steps = -(-num_spans // (NUM_RANKS * (SPANS_A_STEP - 1)))
    (table,) = MadeJob(num_ranks=NUM_RANKS, num_steps=num_steps).blocks(num_steps)
    spans = span_columns(table)
    spans = spans.where(spans.stage != Stage.STEP)
    spans = spans.where(np.lexsort((spans.start_ns, spans.rank)))
    return spans.where(np.linspace(0, len(spans) - 1, num_spans).astype(np.int64))


def for_canvas(spans: SpanColumns) -> dict[str, object]:
    """The ``data`` of a ``SpanTimeline``."""
    return buffer_of(spans, {rank: f"rank {rank}" for rank in range(NUM_RANKS)}, NUM_RANKS)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bars:
    """One stage: start and duration in milliseconds, middle of the lane in rows."""

    name: str
    colour: str
    start: Floats
    duration: Floats
    middle: Floats


def _stages(spans: SpanColumns) -> list[_Bars]:
    start = (spans.start_ns - spans.start_ns.min()) / 1e6
    middle = spans.rank + (lane_of(spans.stream) + 0.5) / len(LANES)
    found = []
    for code in np.unique(spans.stage).tolist():
        stage, rows = STAGE_BY_CODE[code], spans.stage == code
        found.append(
            _Bars(
                name=stage.label,
                colour=STAGE_COLOURS[stage],
                start=start[rows],
                duration=spans.duration_ns[rows] / 1e6,
                middle=middle[rows],
            )
        )
    return found


def as_bars(spans: SpanColumns) -> go.Figure:
    """One ``go.Bar`` per stage: SVG."""
    figure = go.Figure()
    for one in _stages(spans):
        figure.add_trace(
            go.Bar(
                orientation="h",
                name=one.name,
                base=one.start,
                x=one.duration,
                y=one.middle,
                width=0.9 / len(LANES),
                marker={"color": one.colour, "line": {"width": 0}},
            )
        )
    return _framed(figure)


def as_lines(spans: SpanColumns) -> go.Figure:
    """One ``go.Scattergl`` per stage: a line for each span, and a gap after it."""
    figure = go.Figure()
    for one in _stages(spans):
        gap = np.full(len(one.start), np.nan)
        figure.add_trace(
            go.Scattergl(
                name=one.name,
                mode="lines",
                x=np.column_stack([one.start, one.start + one.duration, gap]).ravel(),
                y=np.column_stack([one.middle, one.middle, gap]).ravel(),
                line={"color": one.colour, "width": 4},
            )
        )
    return _framed(figure)


def _framed(figure: go.Figure) -> go.Figure:
    figure.update_layout(template="none", height=760, width=1200, barmode="overlay", bargap=0)
    figure.update_yaxes(range=[NUM_RANKS, 0], fixedrange=True)
    return figure
