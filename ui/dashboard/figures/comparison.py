"""Two runs over each other: step time and loss by step, and the ratio of the compute time of each rank.

step time   A  ..-.'..-.'..        ranks   forward-compute   1.00 1.00 1.10 1.00
            B  .-'-.'-'..-'                backward-compute  1.00 1.00 1.09 1.01
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import plotly.graph_objects as go

from diagnose.compare.records import Comparison, RankRatios, SideFacts
from ui.dashboard.events import RunEvent
from ui.dashboard.figures.markers import STRIP_PX, combine, marker_trace, strip_axis
from ui.dashboard.figures.series import thinned
from ui.dashboard.figures.style import (
    BLUE,
    CLEAR,
    COLOUR_BAR_PX,
    RATIO_SCALE,
    TROUBLE,
    framed,
    plain,
    room_for,
    short,
    titled,
)
from ui.dashboard.records import Floats, Ints, Series

STEPS_PX, TOP_PX, BELOW_PX, LEFT_PX = 284, 34, 48, 62
EDGES_PX, ROW_PX, LEAST_ROW_PX = 84, 34, 6
LEAST_PX, MOST_PX = 190, 900
RANKS_A_ROW = 128
"""Ranks in a row. Further ranks continue in the next row."""
RATIOS = (0.8, 1.2)
"""Range of the colours. Changes below 2.4% are grey."""


def step_times(
    found: Comparison, a_events: Sequence[RunEvent] = (), b_events: Sequence[RunEvent] = (), *, keep: str
) -> go.Figure:
    """Step time of A and B by step, with the events of both runs in a strip above. If they have no step in common, both
    begin at 0. ``keep``: as in ``framed``."""
    is_common = _is_common(found)
    sides = [("A", found.a, BLUE, a_events), ("B", found.b, TROUBLE, b_events)]
    begins = [0 if is_common else int(side.steps[0]) for _, side, _, _ in sides]
    lines = [
        _line(name, side, colour, side.steps, side.step_ns / 1e9, first=begin, unit=" s")
        for (name, side, colour, _), begin in zip(sides, begins, strict=True)
    ]
    places = [
        (max(event.step, int(side.steps[0])) - begin, replace(event, name=f"{name}: {event.name}"))
        for (name, side, _, events), begin in zip(sides, begins, strict=True)
        for event in events
        if max(event.step, event.last_step) >= side.steps[0] and event.step <= side.steps[-1]
    ]
    ends = [line.x[end] for line in lines for end in (0, -1)]
    strip = STRIP_PX / (STEPS_PX - TOP_PX - BELOW_PX)
    return framed(
        [*lines, marker_trace(combine(places, min(ends), max(ends)))],
        height_px=STEPS_PX,
        keep=keep,
        hovermode="closest",
        margin={"t": TOP_PX, "r": 24, "b": BELOW_PX, "l": LEFT_PX},
        legend={"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom", "bgcolor": CLEAR},
        xaxis={"title": titled(_step_title(found)), "anchor": "y"},
        yaxis={"title": titled("step time, s"), "nticks": 5} | {"domain": [0, 1 - strip]},
        yaxis2=strip_axis(strip),
    )


def _is_common(found: Comparison) -> bool:
    """Whether A and B have steps in common. If not, both begin at 0."""
    return len(np.intersect1d(found.a.steps, found.b.steps)) > 0


def _step_title(found: Comparison) -> str:
    return "step" if _is_common(found) else "number of the step, from the first compared step"


def loss_curves(found: Comparison, a: Series | None, b: Series | None, *, keep: str) -> go.Figure | None:
    """Loss of A and B by step, in the compared steps. None if neither has a loss. ``keep``: as in ``framed``."""
    lines = []
    for name, side, loss, colour in (("A", found.a, a, BLUE), ("B", found.b, b, TROUBLE)):
        inside = loss and loss.where((loss.step >= side.steps[0]) & (loss.step <= side.steps[-1]))
        if inside and len(inside.step):
            first = 0 if _is_common(found) else int(side.steps[0])
            lines.append(_line(name, side, colour, inside.step, inside.value, first=first))
    if not lines:
        return None
    return framed(
        lines,
        height_px=STEPS_PX,
        keep=keep,
        hovermode="closest",
        margin={"t": TOP_PX, "r": 24, "b": BELOW_PX, "l": LEFT_PX},
        showlegend=True,
        legend={"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom", "bgcolor": CLEAR},
        xaxis={"title": titled(_step_title(found))},
        yaxis={"title": titled("loss"), "nticks": 5},
    )


def _line(
    name: str, side: SideFacts, colour: str, steps: Ints, values: Floats, *, first: int, unit: str = ""
) -> go.Scatter:
    """The curve of a side. The x axis begins at ``first``."""
    step, value = thinned(steps, values)
    return go.Scatter(
        x=step - first,
        y=value,
        mode="lines",
        line={"color": colour, "width": 1.6},
        opacity=0.85,
        name=f"{name}: {plain(short(side.label, 60))}",
        customdata=step,
        hovertemplate=f"<b>{name}</b>, step %{{customdata}}<br>%{{y:.3f}}{unit}<extra></extra>",
    )


def rank_ratios(found: Comparison, *, keep: str) -> go.Figure | None:
    """B / A of the compute time of each rank. None if ranks are not compared."""
    rows = [row for ratios in found.ratios for row in _rows(ratios, found)]
    if not rows:
        return None
    labels = [label for label, _, _ in rows]
    width = max(len(values) for _, values, _ in rows)
    cells = go.Heatmap(
        z=np.array([_padded(values, width) for _, values, _ in rows], dtype=np.float32),
        x=np.arange(width),
        y=np.arange(len(rows)),
        text=[[*hover, *[""] * (width - len(hover))] for _, _, hover in rows],
        zmin=RATIOS[0],
        zmax=RATIOS[1],
        colorscale=RATIO_SCALE,
        xgap=1,
        ygap=2,
        hovertemplate="%{text}<br><b>%{z:.3f}x the time of A</b><extra></extra>",
        hoverongaps=False,
        colorbar={
            "thickness": 12,
            "outlinewidth": 0,
            "len": 1.0,
            "tickvals": [0.8, 0.9, 1.0, 1.1, 1.2],
            "ticktext": ["≤0.8", "0.9", "1 = A", "1.1", "≥1.2"],
        },
    )
    return framed(
        [cells],
        height_px=_height_px(len(rows)),
        keep=keep,
        margin={"l": room_for(labels), "r": COLOUR_BAR_PX, "t": 10, "b": 48},
        xaxis={"title": titled(_axis_title(found, width)), "nticks": 16},
        yaxis={
            "autorange": "reversed",
            "showgrid": False,
            "tickvals": list(range(0, len(rows), -(-len(rows) // 40))),
            "ticktext": labels[:: -(-len(rows) // 40)],
        },
    )


def _height_px(num_rows: int) -> int:
    """The height of the figure. Rows of a large run are thinner."""
    most = max(MOST_PX, EDGES_PX + LEAST_ROW_PX * num_rows)
    return int(np.clip(EDGES_PX + ROW_PX * num_rows, LEAST_PX, most))


def _axis_title(found: Comparison, width: int) -> str:
    return "rank" if all(len(each.ranks) <= RANKS_A_ROW for each in found.ratios) else f"place in rows of {width} ranks"


def _rows(ratios: RankRatios, found: Comparison) -> Iterator[tuple[str, Floats, list[str]]]:
    """The label, the ratios and the hover texts of each row."""
    name = f"{ratios.role} {ratios.stage.label}".strip()
    many = len(ratios.ranks) > RANKS_A_ROW
    for first in range(0, len(ratios.ranks), RANKS_A_ROW):
        ranks = ratios.ranks[first : first + RANKS_A_ROW].tolist()
        label = f"{name}, from rank {ranks[0]}" if many else name
        yield plain(label), ratios.ratio[first : first + RANKS_A_ROW], [_hover(rank, name, found) for rank in ranks]


def _hover(rank: int, name: str, found: Comparison) -> str:
    """``rank 5 on gpu-001``, with the host in A if it was another one."""
    host_a, host_b = (plain(side.hosts[rank] or "unknown host") for side in (found.a, found.b))
    moved = f" (A: {host_a})" if host_a != host_b else ""
    return f"rank {rank} on {host_b}{moved}<br>{plain(name)}"


def _padded(values: Sequence[float] | Floats, width: int) -> Floats:
    padded = np.full(width, np.nan)
    padded[: len(values)] = values
    return padded
