"""The timeline of a step: every span of some ranks, a block of lanes for each rank.

rank 4   compute  |== F0 ==|      |=== B0 ===|        pale: inside the step, no span (idle)
         tp         |-|  |-|        |-|   |-|         hatched: a receive, mostly waiting for the sender
         pp                 |s|//r//|
rank 5   compute  |=== F0 ===|
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go

from telemetry.stages import Stage, Stream
from ui.figures.step_shares import Gap
from ui.figures.style import FAINT, GREY, RECEIVES, SELECTED, STAGE_COLOURS, framed, outline, plain
from ui.records import Floats, Ints, SpanColumns
from ui.view_state import SpanKey

MAX_BARS = 5000
"""SVG bars: beyond this a browser takes seconds."""
LANES: tuple[tuple[str, tuple[Stream, ...], float], ...] = (
    ("compute", (Stream.COMPUTE,), 3.0),
    ("tp", (Stream.TP,), 1.3),
    ("pp", (Stream.PP_FORWARD, Stream.PP_BACKWARD), 1.6),
    ("dp", (Stream.DP,), 1.6),
    ("host", (Stream.HOST,), 1.0),
)
"""Name, streams and height of each lane, from the top of a rank's block."""
BLOCK = 0.88
"""Part of a rank's row that its lanes fill."""
MIN_ROW_PX, MAX_ROW_PX, FILLED_PX = 30, 132, 560
TALL_ROW_PX = 48
"""Rows with room for a second line of text."""
NAMED_LANES_PX = 84


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """The spans that fit, and what had to be left out."""

    spans: SpanColumns
    num_hidden: int
    longest_hidden_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """Where a stream lies in a rank's block, 0 to 1 from its top."""

    centre: float
    height: float


def fit(spans: SpanColumns, limit: int = MAX_BARS) -> Drawn:
    """The longest spans, as many as a browser can draw; the order stays."""
    if len(spans) <= limit:
        return Drawn(spans=spans, num_hidden=0, longest_hidden_ns=0)
    by_length = np.argsort(-spans.duration_ns, kind="stable")
    hidden = by_length[limit:]
    return Drawn(
        spans=spans.where(np.sort(by_length[:limit])),
        num_hidden=len(hidden),
        longest_hidden_ns=int(spans.duration_ns[hidden[0]]),
    )


def step_timeline(
    spans: SpanColumns,
    gaps: Sequence[Gap],
    rank_names: Mapping[int, str],
    suspects: Collection[int],
    selected: SpanKey | None,
    *,
    keep: str,
) -> go.Figure:
    """Rows are the ranks of ``rank_names`` in its order; time starts with the earliest span."""
    origin_ns = int(spans.start_ns.min()) if len(spans) else 0
    row_of = {rank: row for row, rank in enumerate(rank_names)}
    lanes = _lanes(spans)
    row_px = int(np.clip(FILLED_PX / max(1, len(row_of)), MIN_ROW_PX, MAX_ROW_PX))
    figure = go.Figure()
    _add_steps(figure, spans, row_of, origin_ns)
    _add_gaps(figure, gaps, row_of, origin_ns)
    for stage in Stage:
        chosen = spans.where(spans.stage == stage)
        if stage is not Stage.STEP and len(chosen):
            figure.add_trace(_bars(stage, chosen, row_of, lanes, origin_ns))
    _set_axes(figure, [_label(rank, name, rank in suspects, row_px) for rank, name in rank_names.items()])
    figure.update_layout(
        shapes=_selection(spans, selected, row_of, lanes, origin_ns),
        annotations=_lane_names(lanes, len(row_of)) if row_px >= NAMED_LANES_PX else [],
    )
    return _framed(figure, row_px * len(row_of) + 110, keep)


def _set_axes(figure: go.Figure, labels: list[str]) -> None:
    """Time along x; a row a rank, named by ``labels``, from the top."""
    figure.update_xaxes(title={"text": "ms since the step began", "standoff": 6}, showgrid=True, gridcolor=FAINT)
    figure.update_yaxes(
        autorange=False,
        range=[len(labels) - 0.02, -0.08],
        tickvals=[row + BLOCK / 2 for row in range(len(labels))],
        ticktext=labels,
        showgrid=False,
        fixedrange=True,
    )


def _framed(figure: go.Figure, height_px: int, keep: str) -> go.Figure:
    legend = {"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0, "itemsizing": "constant", "font": {"size": 12}}
    return framed(
        figure,
        height_px=height_px,
        keep=keep,
        barmode="overlay",
        bargap=0,
        legend=legend,
        dragmode="zoom",
        hovermode="closest",
        clickmode="event",
        margin={"l": 8, "r": 52, "t": 56, "b": 8},
    )


def _lanes(spans: SpanColumns) -> dict[int, Lane]:
    """Lane of each stream that occurs; lanes without spans take no room."""
    present = set(np.unique(spans.stream[spans.stage != Stage.STEP]).tolist())
    shown = [lane for lane in LANES if present.intersection(lane[1])]
    total, top, lanes = sum(lane[2] for lane in shown) or 1.0, 0.0, {}
    for _, streams, weight in shown:
        height = BLOCK * weight / total
        lanes.update({int(stream): Lane(centre=top + height / 2, height=height * 0.92) for stream in streams})
        top += height
    return lanes


def _lane_names(lanes: Mapping[int, Lane], num_rows: int) -> list[dict[str, object]]:
    """What each lane of a rank's block holds, right of it."""
    place = {"xref": "paper", "x": 1, "xanchor": "left", "showarrow": False, "font": {"size": 10, "color": GREY}}
    return [
        place | {"y": row + lanes[int(streams[0])].centre, "text": name}
        for row in range(num_rows)
        for name, streams, _ in LANES
        if int(streams[0]) in lanes
    ]


def _bars(
    stage: Stage, spans: SpanColumns, row_of: Mapping[int, int], lanes: Mapping[int, Lane], origin: int
) -> go.Bar:
    centre = np.array([lanes[int(stream)].centre for stream in spans.stream])
    height = np.array([lanes[int(stream)].height for stream in spans.stream])
    marker: dict[str, object] = {
        "color": STAGE_COLOURS[stage],
        "line": {"width": 0.5, "color": "rgba(255,255,255,0.5)"},
    }
    if stage in RECEIVES:
        hatching = {"shape": "/", "size": 5, "solidity": 0.4, "fillmode": "overlay"}
        marker["pattern"] = hatching | {"fgcolor": "rgba(255,255,255,0.8)", "fgopacity": 1}
    return go.Bar(
        orientation="h",
        name=stage.label,
        base=_ms(spans.start_ns - origin),
        x=_ms(spans.duration_ns),
        y=_rows(spans.rank, row_of) + centre,
        width=height,
        marker=marker,
        # A list: of a typed array the browser tells a click nothing.
        customdata=np.column_stack([spans.rank, spans.seq, spans.microbatch]).tolist(),
        hovertemplate=f"<b>{stage.label}</b>%{{text}}<br>rank %{{customdata[0]}}"
        "<br>%{x:.3f} ms from %{base:.3f} ms<extra></extra>",
        text=[f" · microbatch {number}" if number >= 0 else "" for number in spans.microbatch.tolist()],
        textposition="none",
    )


def _add_steps(figure: go.Figure, spans: SpanColumns, row_of: Mapping[int, int], origin: int) -> None:
    steps = spans.where(spans.stage == Stage.STEP)
    figure.add_trace(
        go.Bar(
            orientation="h",
            name="step",
            base=_ms(steps.start_ns - origin),
            x=_ms(steps.duration_ns),
            y=_rows(steps.rank, row_of) + BLOCK / 2,
            width=BLOCK,
            marker={"color": STAGE_COLOURS[Stage.STEP], "line": {"width": 0}},
            hoverinfo="skip",
            showlegend=False,
        )
    )


def _add_gaps(figure: go.Figure, gaps: Sequence[Gap], row_of: Mapping[int, int], origin: int) -> None:
    """Idle time, drawn over the pale step so that it can be pointed at."""
    if not gaps:
        return
    start = np.array([gap.start_ns for gap in gaps])
    figure.add_trace(
        go.Bar(
            orientation="h",
            name="idle",
            base=_ms(start - origin),
            x=_ms(np.array([gap.duration_ns for gap in gaps])),
            y=_rows(np.array([gap.rank for gap in gaps]), row_of) + BLOCK / 2,
            width=BLOCK,
            marker={"color": "rgba(134,142,150,0.10)", "line": {"width": 0}}
            | {"pattern": {"shape": ".", "size": 6, "solidity": 0.12, "fillmode": "overlay", "fgcolor": GREY}},
            text=[gap.cause for gap in gaps],
            textposition="none",
            hovertemplate="<b>idle</b> %{x:.1f} ms<br>%{text}<extra></extra>",
        )
    )


def _selection(
    spans: SpanColumns, selected: SpanKey | None, row_of: Mapping[int, int], lanes: Mapping[int, Lane], origin: int
) -> list[dict[str, object]]:
    if selected is None or selected.rank not in row_of:
        return []
    row = np.flatnonzero((spans.rank == selected.rank) & (spans.seq == selected.seq))
    if not len(row) or int(spans.stream[row[0]]) not in lanes:
        return []
    at = int(row[0])
    lane = lanes[int(spans.stream[at])]
    middle, start = row_of[selected.rank] + lane.centre, (int(spans.start_ns[at]) - origin) / 1e6
    end = start + int(spans.duration_ns[at]) / 1e6
    return [outline(start, end, middle - lane.height / 2, middle + lane.height / 2, colour=SELECTED, width_px=3)]


def _label(rank: int, name: str, suspect: bool, row_px: int) -> str:
    head = f"<b>▶ rank {rank} suspect</b>" if suspect else f"rank {rank}"
    return f"{head}<br>{plain(name)}" if row_px >= TALL_ROW_PX else head


def _rows(rank: Ints, row_of: Mapping[int, int]) -> npt.NDArray[np.float64]:
    return np.array([row_of[int(one)] for one in rank], dtype=np.float64)


def _ms(ns: Ints) -> Floats:
    return np.asarray(ns / 1e6, dtype=np.float64)
