"""The heat map: rank by step, coloured by time or by the ratio to the peers."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from diagnose.ranges import name_some
from ui.dashboard.figures.metrics import BESIDE, READINGS, values
from ui.dashboard.figures.style import (
    COLOUR_BAR_PX,
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
from ui.dashboard.records import Floats, PooledTimes
from ui.dashboard.view_state import Metric

MAX_LABELS = 50
MAX_SPACED = 128
"""More rows or columns have no gap. Plotly then draws each cell as a pixel, which is much faster for many cells."""
THINNEST_OUTLINE = 160
ROW_PX, MIN_PX, MAX_PX = 30, 200, 900
NUM_TICKS, LARGE_TICK = 5, 100.0
"""Ticks of a colour bar with open ends. From LARGE_TICK on, ticks have no decimals."""
LEAST_WAIT_TOP = 5.0
"""Percent of a step. The smallest upper end of the scale of waiting times."""
HALF_LABEL_PX, STEP_PX = 20, 56
"""Margin above for half a label, and below for ticks and axis title."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Colours:
    """The colour scale of a picture."""

    scale: str | list[list[float | str]]
    lowest: float
    highest: float
    title: str
    outline: str = SUSPECT
    is_exceeded: tuple[bool, bool] = (False, False)
    """Whether there are values below ``lowest`` and above ``highest``. They have the colour of that end."""


def colours_for(metric: Metric, coloured: Floats) -> Colours:
    """The scale of a metric. For ratios it is fixed, so that a colour always has the same meaning. Milliseconds span
    most values. Shares start at 0, so that small differences stay faint."""
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
        outline=SUSPECT_ON_TIME,
        is_exceeded=(least < low, most > max(high, low + 1e-6)),
    )


def rank_by_step(
    times: PooledTimes, metric: Metric, hosts: Sequence[str], suspects: Collection[int], *, keep: str
) -> go.Figure:
    """Rows are ranks, columns are steps, suspects are outlined. Each cell shows its worst rank."""
    coloured = values(times, metric)
    colours, num_rows = colours_for(metric, coloured), coloured.shape[1]
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
        hovertemplate=_hover(metric),
        hoverongaps=False,
        colorbar=colour_bar(colours),
    )
    named = _bands(suspects, times.ranks_a_row, _every(num_rows))
    outlined = _bands(suspects, times.ranks_a_row, 2 * _reach(num_rows))
    labels = _row_labels(num_rows, times.ranks_a_row, hosts, named)
    return framed(
        [cells],
        height_px=int(np.clip(ROW_PX * num_rows + HALF_LABEL_PX + STEP_PX, MIN_PX, MAX_PX)),
        keep=keep,
        margin={"l": room_for(labels.values()), "r": COLOUR_BAR_PX, "t": HALF_LABEL_PX, "b": STEP_PX},
        xaxis={"title": {"text": "step", "standoff": 6}},
        yaxis={"autorange": "reversed", "showgrid": False, "tickvals": [*labels], "ticktext": [*labels.values()]},
        shapes=_outlines(outlined, times, num_rows, colours.outline),
    )


def pooling_note(times: PooledTimes) -> str:
    """What a cell of a pooled picture shows. Empty if each cell is one rank in one step."""
    width, depth = times.steps_a_column, times.ranks_a_row
    parts = [f"the {times.over_steps} of {width} steps"] * (width > 1) + [f"the worst of {depth} ranks"] * (depth > 1)
    return f"Pooled to fit: each cell is {', of '.join(parts)}." if parts else ""


def _hover(metric: Metric) -> str:
    values_text = f"{READINGS[metric].at('z')}<br>{READINGS[BESIDE[metric]].at('customdata[0]')}"
    return f"<b>rank %{{customdata[1]}}</b><br>step %{{x}}<br>{values_text}<extra></extra>"


def _bands(suspects: Collection[int], depth: int, apart: float) -> list[list[int]]:
    """Suspects in groups. In a group, neighbours are less than ``apart`` rows from each other."""
    bands: list[list[int]] = []
    for rank in sorted({*suspects}):
        if bands and rank // depth - bands[-1][-1] // depth < apart:
            bands[-1].append(rank)
        else:
            bands.append([rank])
    return bands


def _every(num_rows: int) -> int:
    """Rows from one label to the next."""
    return -(-num_rows // MAX_LABELS)


def _reach(num_rows: int) -> float:
    """Rows from the middle of a row to its outline. Larger if rows are only a few pixels high."""
    return max(0.5, num_rows / THINNEST_OUTLINE)


def _row_labels(num_rows: int, depth: int, hosts: Sequence[str], bands: Sequence[Sequence[int]]) -> dict[int, str]:
    """Labels of every suspect and of evenly spaced rows. Labels do not overlap."""
    every = _every(num_rows)
    names = {(band[0] // depth + band[-1] // depth) // 2: _suspects(band, hosts) for band in bands}
    near = {row for band in bands for row in range(band[0] // depth - every + 1, band[-1] // depth + every)}
    for row in range(0, num_rows, every):
        if row not in near:
            names[row] = f"rank {row * depth} · {_host(row * depth, hosts)}"
    return {row: names[row] for row in sorted(names)}


def _suspects(band: Sequence[int], hosts: Sequence[str]) -> str:
    several = "s" * (len(band) > 1)
    others = "" if len({hosts[rank] for rank in band}) == 1 else " and others"
    return f"<b>▶ suspect{several}  rank{several} {name_some(band)} · {_host(band[0], hosts)}{others}</b>"


def _host(rank: int, hosts: Sequence[str]) -> str:
    return plain(short(hosts[rank] or "unknown"))


def _outlines(
    bands: Sequence[Sequence[int]], times: PooledTimes, num_rows: int, colour: str
) -> list[dict[str, object]]:
    if not len(times.steps):
        return []
    width, depth = times.steps_a_column, times.ranks_a_row
    left, right = float(times.steps[0]) - width / 2, float(times.steps[-1]) + width / 2
    reach = _reach(num_rows)
    return [outline(left, right, band[0] // depth - reach, band[-1] // depth + reach, colour) for band in bands]


def colour_bar(colours: Colours) -> dict[str, object]:
    """The legend of the colours beside the picture."""
    bar: dict[str, object] = {"title": {"text": colours.title}, "thickness": 12, "outlinewidth": 0, "len": 1.0}
    if colours.scale is RATIO_SCALE:
        bar |= {"tickvals": [0.5, 0.75, 1.0, 1.25, 1.5], "ticktext": ["≤0.5", "0.75", "1 = peers", "1.25", "≥1.5"]}
    elif any(colours.is_exceeded):
        ticks = np.linspace(colours.lowest, colours.highest, NUM_TICKS)
        below, above = colours.is_exceeded
        labels = [f"{tick:,.0f}" if tick >= LARGE_TICK else f"{tick:.3g}" for tick in ticks]
        labels[0], labels[-1] = "≤" * below + labels[0], "≥" * above + labels[-1]
        bar |= {"tickvals": ticks.tolist(), "ticktext": labels}
    return bar
