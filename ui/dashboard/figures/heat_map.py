"""The heat map: rank by step, coloured by time or by the ratio to the peers."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from diagnose.ranges import name_some
from ui.dashboard.chart_view import Axis
from ui.dashboard.events import RunEvent
from ui.dashboard.figures.markers import STRIP_PX, marker_trace, strip_axis
from ui.dashboard.figures.metrics import BESIDE, READINGS, values
from ui.dashboard.figures.style import (
    EDGE_PX,
    RATIO_RANGE,
    RATIO_SCALE,
    SUSPECT,
    SUSPECT_ON_TIME,
    TIME_SCALE,
    framed,
    outline,
    plain,
    room_for,
    short,
)
from ui.dashboard.figures.x_axis import XAxis
from ui.dashboard.records import Floats, Ints, PooledTimes
from ui.dashboard.view_state import Metric

MAX_LABELS = 45
MAX_LABEL_LENGTH = 46
"""Characters of the label of a row. A longer label omits the position."""
MAX_SPACED = 128
"""With more rows or columns than this, there are no gaps. Plotly then draws each cell as a pixel, which is faster."""
THINNEST_OUTLINE = 160
ROW_PX, MIN_PX, MAX_PX = 30, 200, 720
NUM_TICKS, LARGE_TICK = 5, 100.0
"""Ticks of a colour bar with open ends. From LARGE_TICK on, ticks have no decimals."""
LEAST_WAIT_TOP = 5.0
"""Percent of a step. The smallest upper end of the scale of waiting times."""
STEP_PX = 56
"""Margin below for ticks and axis title."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Colours:
    """The colour scale of a picture."""

    scale: str | list[list[float | str]]
    lowest: float
    highest: float
    title: str
    unit: str = ""
    """Written behind a value."""
    outline: str = SUSPECT
    is_exceeded: tuple[bool, bool] = (False, False)
    """Whether there are values below ``lowest`` and above ``highest``. They have the colour of that end."""


def colours_for(metric: Metric, coloured: Floats) -> Colours:
    """The colour scale of a metric, with its ends.

    ratio            fixed ends, so that a colour always has the same meaning
    milliseconds     the 1st and the 99th percentile of the values
    share, wait      from 0 to the largest value, so that small differences stay faint
    """
    title = READINGS[metric].title
    if metric is Metric.RATIO:
        return Colours(scale=RATIO_SCALE, lowest=RATIO_RANGE[0], highest=RATIO_RANGE[1], title=title)
    known = coloured[np.isfinite(coloured)]
    least, most = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    low, high = 0.0, most
    if metric is Metric.MILLISECONDS and len(known):
        low, high = (float(edge) for edge in np.percentile(known, (1, 99)))
    if metric is Metric.WAIT:
        high = max(high, LEAST_WAIT_TOP)
    return Colours(
        scale=TIME_SCALE,
        lowest=low,
        highest=max(high, low + 1e-6),
        title=title,
        unit=READINGS[metric].unit,
        outline=SUSPECT_ON_TIME,
        is_exceeded=(least < low, most > max(high, low + 1e-6)),
    )


def rank_by_step(
    times: PooledTimes,
    metric: Metric,
    colours: Colours,
    hosts: Sequence[str],
    place: Callable[[int], str],
    suspects: Collection[int],
    *,
    keep: str,
    events: Sequence[RunEvent] = (),
) -> go.Figure:
    """Rows are ranks, columns are steps, suspects are outlined. Each cell shows its worst rank. Events are in a strip
    above the cells.

    ``hosts``: the host of each rank. ``place``: the position of a rank in the mesh. The browser draws the hover text
    (``assets/heat_map.js``).
    """
    coloured = values(times, metric)
    num_rows, depth = coloured.shape[1], times.ranks_a_row
    extra = np.dstack([values(times, BESIDE[metric]).T, times.worst.T])
    cells = go.Heatmap(
        z=coloured.T.astype(np.float32),
        x=times.steps,
        y=np.arange(num_rows),
        customdata=extra.astype(np.float32),
        zmin=colours.lowest,
        zmax=colours.highest,
        colorscale=colours.scale,
        xgap=1 if max(coloured.shape) <= MAX_SPACED else 0,
        ygap=2 if num_rows <= MAX_SPACED else 0,
        hoverinfo="none",
        hoverongaps=False,
        showscale=False,
    )
    marked = np.flatnonzero(np.isin(times.ranks, [*suspects]))
    labels = _row_labels(times, hosts, place, marked)
    height_px = int(np.clip(EDGE_PX + STRIP_PX + ROW_PX * num_rows + STEP_PX, MIN_PX, MAX_PX))
    strip = STRIP_PX / (height_px - EDGE_PX - STEP_PX)
    x_axis, (left, right) = _x_axis(times), _ends(times)
    ends = {"minallowed": left, "maxallowed": max(right, x_axis.last)}  # they grow with a live run, unlike a range
    return framed(
        [cells, marker_trace(x_axis.markers(events))],
        height_px=height_px,
        keep=keep,
        showlegend=False,
        margin={"l": room_for(labels.values()), "r": EDGE_PX, "t": EDGE_PX, "b": STEP_PX},
        meta={"hover": hover_parts(metric) | {"rankAt": 1, "besideAt": 0, "steps": times.steps_a_column}},
        xaxis={"title": x_axis.title, "anchor": "y", "autorangeoptions": ends},
        yaxis={"autorange": "reversed", "showgrid": False, "domain": [0, 1 - strip]}
        | {"tickvals": sorted(labels), "ticktext": [labels[row] for row in sorted(labels)]},
        yaxis2=strip_axis(strip),
        shapes=_outlines(bands(marked, depth, 2 * _reach(num_rows)), times, num_rows, colours.outline),
    )


def _ends(times: PooledTimes) -> tuple[float, float]:
    """The left edge of the first column, and the right edge of the last one."""
    if not len(times.steps):
        return -0.5, 0.5
    half = times.steps_a_column / 2
    return float(times.steps[0]) - half, float(times.steps[-1]) + half


def _x_axis(times: PooledTimes) -> XAxis:
    first, last = (int(times.steps[0]), int(times.steps[-1])) if len(times.steps) else (0, 0)
    return XAxis(axis=Axis.STEP, first=first, last=last + times.steps_a_column - 1)


def pooling_note(times: PooledTimes) -> str:
    """What a cell of a pooled picture shows. Empty if each cell is one rank in one step."""
    width, depth = times.steps_a_column, times.ranks_a_row
    parts = [f"the {times.over_steps} of {width} steps"] * (width > 1) + [f"the worst of {depth} ranks"] * (depth > 1)
    return f"Pooled to fit: each cell is {', of '.join(parts)}." if parts else ""


def hover_parts(metric: Metric) -> dict[str, object]:
    """What the hover text of a cell needs: formats of its value and of the value beside it."""
    return {"value": READINGS[metric].hover, "beside": READINGS[BESIDE[metric]].hover}


def bands(marked: Ints, depth: int, apart: float) -> list[Ints]:
    """Places of suspects in groups. In a group, neighbours are less than ``apart`` rows from each other.

    ``marked``: places in the order of the rows, ascending. ``depth``: places in a row.
    """
    if not len(marked):
        return []
    return np.split(marked, np.flatnonzero(np.diff(marked // depth) >= apart) + 1)


def _every(num_rows: int) -> int:
    """Rows from one label to the next."""
    return -(-num_rows // MAX_LABELS)


def _reach(num_rows: int) -> float:
    """Rows from the middle of a row to its outline. Larger if rows are only a few pixels high."""
    return max(0.5, num_rows / THINNEST_OUTLINE)


def _row_labels(times: PooledTimes, hosts: Sequence[str], place: Callable[[int], str], marked: Ints) -> dict[int, str]:
    """Labels of suspects and of evenly spaced rows. Labels do not overlap. ``marked``: as in :func:`bands`."""
    depth, num_rows = times.ranks_a_row, times.worst.shape[1]
    every = _every(num_rows)
    near = {at // depth + by for at in marked.tolist() for by in range(1 - every, every)}
    labels = {
        row: _label(times.ranks[row * depth : (row + 1) * depth].tolist(), hosts, place)
        for row in range(0, num_rows, every)
        if row not in near
    }
    for band in bands(marked, depth, every):
        labels[int(band[0] // depth + band[-1] // depth) // 2] = _suspects(times.ranks[band].tolist(), hosts, place)
    return labels


def _label(ranks: Sequence[int], hosts: Sequence[str], place: Callable[[int], str]) -> str:
    """The label of a row: ``rank 5 · gpu-03 · dp1 pp0 tp1``, ``ranks 0-5 · gpu-00``, ``rank 9 and 5 more · gpu-01``."""
    first, last = ranks[0], ranks[-1]
    if len(ranks) == 1:
        return _with_place(f"rank {first} · {_host(first, hosts)}", place(first))
    are_neighbours = [*ranks] == [*range(first, last + 1)]
    several = f"ranks {first}-{last}" if are_neighbours else f"rank {first} and {len(ranks) - 1} more"
    return f"{several} · {_host(first, hosts)}"


def _suspects(ranks: Sequence[int], hosts: Sequence[str], place: Callable[[int], str]) -> str:
    if len(ranks) == 1:
        return f"<b>{_with_place(f'▶ suspect rank {ranks[0]} · {_host(ranks[0], hosts)}', place(ranks[0]))}</b>"
    others = "" if len({hosts[rank] for rank in ranks}) == 1 else " and others"
    return f"<b>▶ suspect ranks {name_some(ranks)} · {_host(ranks[0], hosts)}{others}</b>"


def _with_place(label: str, place: str) -> str:
    longer = f"{label} · {plain(place)}"
    return longer if len(longer) <= MAX_LABEL_LENGTH else label


def _host(rank: int, hosts: Sequence[str]) -> str:
    return plain(short(hosts[rank] or "unknown"))


def _outlines(outlined: Sequence[Ints], times: PooledTimes, num_rows: int, colour: str) -> list[dict[str, object]]:
    if not len(times.steps):
        return []
    depth, reach = times.ranks_a_row, _reach(num_rows)
    left, right = _ends(times)
    return [
        outline(left, right, int(band[0]) // depth - reach, int(band[-1]) // depth + reach, colour) for band in outlined
    ]


def scale_ticks(colours: Colours) -> list[tuple[float, str]]:
    """Values on the colour scale with their labels, ascending. Labels of open ends begin with a sign."""
    if colours.scale is RATIO_SCALE:
        return [(0.5, "≤0.5"), (0.75, "0.75"), (1.0, "1 = peers"), (1.25, "1.25"), (1.5, "≥1.5")]
    ticks = np.linspace(colours.lowest, colours.highest, NUM_TICKS).tolist()
    labels = [f"{tick:,.0f}" if tick >= LARGE_TICK else f"{tick:.3g}" for tick in ticks]
    below, above = colours.is_exceeded
    labels[0], labels[-1] = "≤" * below + labels[0], "≥" * above + labels[-1]
    return list(zip(ticks, labels, strict=True))


def colour_bar(colours: Colours) -> dict[str, object]:
    """The legend of the colours beside the picture."""
    # The empty line keeps the title away from the highest tick.
    title = {"text": f"{colours.title}<br><span style='font-size:6px'>&nbsp;</span>"}
    bar: dict[str, object] = {"title": title, "thickness": 12, "outlinewidth": 0, "len": 1.0}
    if colours.scale is RATIO_SCALE or any(colours.is_exceeded):
        ticks = scale_ticks(colours)
        bar |= {"tickvals": [tick for tick, _ in ticks], "ticktext": [label for _, label in ticks]}
    return bar
