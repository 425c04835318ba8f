"""Hosts as boxes with their ranks inside, coloured by the median over the steps shown (MegaScale, figure 7).

gpu-01        gpu-02        gpu-03
+---+---+     +---+---+     +---+---+
| 0 | 1 |     | 2 | 3 |     | 4 |[5]|      [suspect]
+---+---+     +---+---+     +---+---+
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import plotly.graph_objects as go

from diagnose.model.peers import medians
from ui.dashboard.figures.heat_map import Colours, colours_for
from ui.dashboard.figures.metrics import BESIDE, READINGS, values
from ui.dashboard.figures.style import (
    EDGE_PX,
    FAINT_HALF_WIDTH,
    FONT,
    GREY,
    MAX_LABEL,
    ON_DARK,
    ON_LIGHT,
    RATIO_SCALE,
    framed,
    outline,
    plain,
    short,
)
from ui.dashboard.records import Floats, StageTimes
from ui.dashboard.view_state import Metric

RANKS_A_ROW = 8
MAX_NAMED_HOSTS = 128
MAX_NUMBERED_RANKS = 256
MAX_SPACED = 128
"""More cells in a row have no gap."""
GAP_PX = 3
CELL_PX, MIN_PX, MAX_PX = 52, 110, 900
SHAPE = 6.0
"""Width divided by height of the picture, in cells."""
MIN_COLUMNS = 18
"""A small job has at least this many columns, so that its cells are not stretched."""


class Cell(NamedTuple):
    """Where a rank is drawn. :func:`_cells` makes columns of the fields, in this order."""

    rank: int
    row: int
    column: int


CHARACTERS_A_CELL = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A host: its name, its corner, its size in cells, and its ranks."""

    host: str
    row: int
    column: int
    width: int
    height: int
    cells: tuple[Cell, ...]


def host_boxes(
    times: StageTimes,
    metric: Metric,
    hosts: Sequence[str],
    local_ranks: Sequence[int],
    suspects: Collection[int],
    *,
    keep: str,
) -> go.Figure:
    """One cell for each rank, one box for each host. The value is the median over the steps. If there are too many
    hosts for names, gaps separate the hosts."""
    boxes = lay_out(hosts, local_ranks)
    rows = max((box.row + box.height for box in boxes), default=1)
    columns = max((box.column + box.width for box in boxes), default=1)
    value, other = (medians(values(times, shown_metric), axis=0) for shown_metric in (metric, BESIDE[metric]))
    colours = colours_for(metric, value)
    hidden = {"visible": False, "fixedrange": True}
    return framed(
        [_cells(boxes, value, other, (rows, columns), colours, hover=_hover(metric, over_steps(times)))],
        height_px=int(np.clip(CELL_PX * rows + 10, MIN_PX, MAX_PX)),
        keep=keep,
        margin={"l": EDGE_PX, "b": EDGE_PX},
        dragmode=False,
        xaxis=hidden | {"range": [-0.6, max(columns, MIN_COLUMNS) - 0.4]},
        yaxis=hidden | {"range": [rows - 0.4, 0.1]},
        shapes=[*_frames(boxes), *_suspect_outlines(boxes, suspects, colours.outline)],
        annotations=[*_host_names(boxes), *_numbers(boxes, value, metric, len(hosts), colours)],
    )


def _hover(metric: Metric, over: str) -> str:
    values_text = f"{READINGS[metric].at('z')}<br>{READINGS[BESIDE[metric]].at('customdata[1]')}"
    return f"<b>rank %{{customdata[0]}}</b><br>{over} {values_text}<extra></extra>"


def _cells(
    boxes: list[Box], value: Floats, other: Floats, shape: tuple[int, int], colours: Colours, *, hover: str
) -> go.Heatmap:
    """``value`` as colours of the cells, ``other`` as hover text."""
    grid, extra = np.full(shape, np.nan), np.full((*shape, 2), np.nan)
    ranks, rows, columns = np.array([cell for box in boxes for cell in box.cells], dtype=np.int64).reshape(-1, 3).T
    grid[rows, columns] = value[ranks]
    extra[rows, columns] = np.column_stack((ranks, other[ranks]))
    gap = GAP_PX if shape[1] <= MAX_SPACED else 0
    return go.Heatmap(
        z=grid.astype(np.float32),
        customdata=extra.astype(np.float32),
        zmin=colours.lowest,
        zmax=colours.highest,
        colorscale=colours.scale,
        xgap=gap,
        ygap=gap,
        showscale=False,
        hoverongaps=False,
        hovertemplate=hover,
    )


def lay_out(hosts: Sequence[str], local_ranks: Sequence[int]) -> list[Box]:
    """Boxes in rows, wider than high. Ranks of a host are ordered by local rank."""
    members: dict[str, list[int]] = {}
    for rank, host in enumerate(hosts):
        members.setdefault(host or "unknown host", []).append(rank)
    largest = max((len(ranks) for ranks in members.values()), default=1)
    width, height = min(RANKS_A_ROW, largest), -(-largest // RANKS_A_ROW)
    a_row = int(np.clip(np.ceil(np.sqrt(SHAPE * len(members) * (height + 1) / (width + 1))), 1, max(1, len(members))))
    boxes = []
    for number, (host, ranks) in enumerate(members.items()):
        row, column = number // a_row * (height + 1) + 1, number % a_row * (width + 1)
        ordered = sorted(ranks, key=lambda rank: (local_ranks[rank], rank))
        cells = tuple(
            Cell(rank=rank, row=row + at // RANKS_A_ROW, column=column + at % RANKS_A_ROW)
            for at, rank in enumerate(ordered)
        )
        boxes.append(Box(host=host, row=row, column=column, width=width, height=height, cells=cells))
    return boxes


def over_steps(times: StageTimes) -> str:
    """How the value of a rank is computed from its steps."""
    return "median" if times.num_steps == 1 else "mean"


def _frames(boxes: list[Box]) -> list[dict[str, object]]:
    if len(boxes) > MAX_NAMED_HOSTS:
        return []
    return [
        outline(
            box.column - 0.5,
            box.column + box.width - 0.5,
            box.row - 0.5,
            box.row + box.height - 0.5,
            colour="rgba(134,142,150,0.55)",
            width_px=1,
        )
        for box in boxes
    ]


def _suspect_outlines(boxes: list[Box], suspects: Collection[int], colour: str) -> list[dict[str, object]]:
    return [
        outline(cell.column - 0.46, cell.column + 0.46, cell.row - 0.46, cell.row + 0.46, colour, width_px=3)
        for box in boxes
        for cell in box.cells
        if cell.rank in suspects
    ]


def _host_names(boxes: list[Box]) -> list[dict[str, object]]:
    if len(boxes) > MAX_NAMED_HOSTS:
        return []
    return [
        {"x": box.column - 0.5, "y": box.row - 0.55, "text": _label(box), "xanchor": "left", "yanchor": "bottom"}
        | {"showarrow": False, "font": {"family": FONT, "size": 12, "color": GREY}}
        for box in boxes
    ]


def _label(box: Box) -> str:
    """The host name, shortened to the room before the next box."""
    return plain(short(box.host, min(MAX_LABEL, CHARACTERS_A_CELL * (box.width + 1))))


def _numbers(
    boxes: list[Box], value: Floats, metric: Metric, num_ranks: int, colours: Colours
) -> list[dict[str, object]]:
    if num_ranks > MAX_NUMBERED_RANKS:
        return []
    return [
        {
            "x": cell.column,
            "y": cell.row,
            "showarrow": False,
            "font": {"color": ink_on(float(value[cell.rank]), colours)},
        }
        | {"text": f"<b>{cell.rank}</b>" + _reading(float(value[cell.rank]), metric, num_ranks)}
        for box in boxes
        for cell in box.cells
    ]


def ink_on(value: float, colours: Colours) -> str:
    """Black or white on a strong colour. The text colour of the page on faint colours of the ratio scale."""
    place = (value - colours.lowest) / (colours.highest - colours.lowest)
    if colours.scale is RATIO_SCALE:
        return ON_LIGHT if abs(place - 0.5) > FAINT_HALF_WIDTH else GREY
    return ON_LIGHT if place > 0.5 else ON_DARK


def _reading(value: float, metric: Metric, num_ranks: int) -> str:
    if num_ranks > 64 or np.isnan(value):
        return ""
    return f"<br>{READINGS[metric].cell.format(value)}"
