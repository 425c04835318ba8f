"""Hosts as boxes with their ranks inside, coloured by the median over the steps shown (MegaScale, figure 7).

gpu-01        gpu-02        gpu-03
+---+---+     +---+---+     +---+---+
| 0 | 1 |     | 2 | 3 |     | 4 |[5]|      [suspect]
+---+---+     +---+---+     +---+---+

Names and numbers are drawn where they fit. The hover text always has them.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import plotly.graph_objects as go

from ui.dashboard.figures.heat_map import Colours, hover_parts
from ui.dashboard.figures.metrics import READINGS
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
    ink_from_faint,
    outline,
    plain,
    short,
)
from ui.dashboard.records import Floats, Ints, StageTimes
from ui.dashboard.view_state import Metric

RANKS_A_ROW = 8
MAX_SPACED = 128
"""With more cells in a row than this, there are no gaps."""
WIDTH_PX = 800
"""The narrowest picture that labels must fit into."""
CELL_PX, LEAST_CELL_PX, MIN_PX, MAX_PX = 52, 8, 136, 432
"""Height of a cell, and of the picture."""
NAME_PX, GAP_PX = 14, 4
"""Height above the cells of a host, with and without its name."""
LETTER_PX = 6.1
OUTLINE_PX, LEAST_OUTLINE_PX = 3, 12
"""Width of the line around a suspect, and the smallest outline."""
SHAPE = 6.0
"""Width divided by height of the picture, in cells."""


class Cell(NamedTuple):
    """Where a rank is drawn. :func:`_cells` makes columns of the fields, in this order."""

    rank: int
    row: int
    column: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A host: its name, its corner, its size in cells, and its ranks."""

    host: str
    row: int
    column: int
    width: int
    height: int
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxLayout:
    """All boxes. Rows have unequal heights: above each line of hosts there is a row for their names."""

    boxes: list[Box]
    columns: int
    edges_px: Floats
    """The upper edge of each row, and the lower edge of the last one, in pixels from the top."""
    cell_px: float
    is_named: bool
    """Whether there is room for the names of hosts."""

    @property
    def cell_width_px(self) -> float:
        """Width of a cell in the narrowest picture."""
        return WIDTH_PX / self.columns


def host_boxes(
    times: StageTimes,
    value: Floats,
    beside: Floats,
    metric: Metric,
    colours: Colours,
    layout: BoxLayout,
    suspects: Collection[int],
    *,
    keep: str,
) -> go.Figure:
    """A figure with a box for each host, and a cell for each rank in the box of its host.

    Args:
        value: the value of each rank, [ranks]. It determines the colour of the cell.
        beside: a second value of each rank, [ranks], for the hover text. The browser draws the hover text
            (``assets/heat_map.js``).
    """
    hidden = {"visible": False, "fixedrange": True}
    names = [_host_names(layout)] if layout.is_named else []
    return framed(
        [_cells(layout, value, beside, colours), *names],
        height_px=round(float(layout.edges_px[-1])) + 2 * EDGE_PX + OUTLINE_PX,
        keep=keep,
        margin={"l": EDGE_PX, "r": EDGE_PX, "t": EDGE_PX, "b": EDGE_PX},
        meta={"hover": hover_parts(metric) | {"rankAt": 0, "besideAt": 1, "over": over_steps(times)}},
        dragmode=False,
        showlegend=False,
        hovermode="closest",
        xaxis=hidden | {"range": [-0.6, layout.columns - 0.4]},
        yaxis=hidden | {"range": [float(layout.edges_px[-1]) + OUTLINE_PX, 0.0]},
        shapes=_suspect_outlines(layout, suspects, colours.outline),
        annotations=_numbers(layout, value, metric, colours),
    )


def over_steps(times: StageTimes) -> str:
    """How the value of a rank is computed from its steps."""
    return "median" if times.num_steps == 1 else "mean"


def lay_out(hosts: Sequence[str], local_ranks: Sequence[int], ranks: Ints) -> BoxLayout:
    """Boxes of the hosts of ``ranks`` in lines, wider than high. Ranks of a host are ordered by local rank.

    ``hosts`` and ``local_ranks``: the host and the local rank of each rank.
    """
    members: dict[str, list[int]] = {}
    for rank in ranks.tolist():
        members.setdefault(hosts[rank] or "unknown host", []).append(rank)
    largest = max(map(len, members.values()))
    width, height = min(RANKS_A_ROW, largest), -(-largest // RANKS_A_ROW)
    a_line, is_named = _hosts_a_line(members, width, height)
    boxes = []
    for number, (host, of_host) in enumerate(members.items()):
        row, column = number // a_line * (height + 1) + 1, number % a_line * (width + 1)
        ordered = sorted(of_host, key=lambda rank: (local_ranks[rank], rank))
        cells = tuple(
            Cell(rank=rank, row=row + at // RANKS_A_ROW, column=column + at % RANKS_A_ROW)
            for at, rank in enumerate(ordered)
        )
        boxes.append(Box(host=host, row=row, column=column, width=width, height=height, cells=cells))
    above_px, lines = NAME_PX if is_named else GAP_PX, -(-len(members) // a_line)
    usual_px = np.clip((MAX_PX / lines - above_px) / height, LEAST_CELL_PX, CELL_PX)
    cell_px = max(float(usual_px), (MIN_PX / lines - above_px) / height)
    heights = np.tile([above_px, *[cell_px] * height], lines)
    return BoxLayout(
        boxes=boxes,
        columns=min(a_line, len(members)) * (width + 1) - 1,
        edges_px=np.concatenate([[0.0], np.cumsum(heights)]),
        cell_px=cell_px,
        is_named=is_named,
    )


def _hosts_a_line(hosts: Collection[str], width: int, height: int) -> tuple[int, bool]:
    """The number of boxes side by side, and whether there is room for the names above them."""
    wide = int(np.ceil(np.sqrt(SHAPE * len(hosts) * (height + 1) / (width + 1))))
    longest = min(MAX_LABEL, max(map(len, hosts)))
    named = max(1, min(wide, int(WIDTH_PX / (LETTER_PX * (longest + 1))), len(hosts)))
    if -(-len(hosts) // named) * (NAME_PX + height * LEAST_CELL_PX) <= MAX_PX:
        return named, True
    most_lines = max(1, MAX_PX // (GAP_PX + height * LEAST_CELL_PX))
    return min(max(wide, -(-len(hosts) // most_lines)), len(hosts)), False


def _cells(layout: BoxLayout, value: Floats, beside: Floats, colours: Colours) -> go.Heatmap:
    """``value`` as colours of the cells, ``beside`` for the hover text."""
    shape = len(layout.edges_px) - 1, layout.columns
    grid, extra = np.full(shape, np.nan), np.full((*shape, 2), np.nan)
    ranks, rows, columns = np.array([cell for box in layout.boxes for cell in box.cells], dtype=np.int64).T
    grid[rows, columns] = value[ranks]
    extra[rows, columns] = np.column_stack((ranks, beside[ranks]))
    gap = 2 if shape[1] <= MAX_SPACED else 0
    return go.Heatmap(
        z=grid.astype(np.float32),
        y=layout.edges_px,
        customdata=extra.astype(np.float32),
        zmin=colours.lowest,
        zmax=colours.highest,
        colorscale=colours.scale,
        xgap=gap,
        ygap=gap,
        showscale=False,
        hoverongaps=False,
        hoverinfo="none",
    )


def _suspect_outlines(layout: BoxLayout, suspects: Collection[int], colour: str) -> list[dict[str, object]]:
    """Outlines around the cells of suspects. An outline is larger than a tiny cell, so its colour stays visible."""
    edges = list(pairwise(layout.edges_px.tolist()))
    beside = max(0.5, LEAST_OUTLINE_PX / 2 / layout.cell_width_px)
    above = max(0.0, (LEAST_OUTLINE_PX - layout.cell_px) / 2)
    return [
        outline(
            cell.column - beside,
            cell.column + beside,
            edges[cell.row][0] - above,
            edges[cell.row][1] + above,
            colour,
            width_px=OUTLINE_PX,
        )
        for box in layout.boxes
        for cell in box.cells
        if cell.rank in suspects
    ]


def _host_names(layout: BoxLayout) -> go.Scatter:
    """The names of the hosts above their boxes, shortened to the room before the next box."""
    edges = layout.edges_px.tolist()
    return go.Scatter(
        x=[box.column - 0.5 for box in layout.boxes],
        y=[edges[box.row - 1] for box in layout.boxes],
        text=[plain(short(box.host, _room(box, layout))) for box in layout.boxes],
        mode="text",
        textposition="bottom right",
        textfont={"family": FONT, "size": 11, "color": GREY},
        cliponaxis=False,
        hoverinfo="skip",
    )


def _room(box: Box, layout: BoxLayout) -> int:
    """Characters that fit above a box, at most MAX_LABEL."""
    return min(MAX_LABEL, max(4, int(layout.cell_width_px * (box.width + 1) / LETTER_PX)))


def _numbers(layout: BoxLayout, value: Floats, metric: Metric, colours: Colours) -> list[dict[str, object]]:
    """The number of each rank, and below it the value, if both fit into a cell."""
    digits = len(str(len(value)))
    if layout.cell_px < 14 or layout.cell_width_px < 7 * digits + 4:
        return []
    with_value = layout.cell_px > 34 and layout.cell_width_px > 36
    middle = [(upper + lower) / 2 for upper, lower in pairwise(layout.edges_px.tolist())]
    return [
        {
            "x": cell.column,
            "y": middle[cell.row],
            "showarrow": False,
            "font": {"color": ink_on(float(value[cell.rank]), colours)},
        }
        | {"text": f"<b>{cell.rank}</b>" + (_reading(float(value[cell.rank]), metric) if with_value else "")}
        for box in layout.boxes
        for cell in box.cells
    ]


def ink_on(value: float, colours: Colours) -> str:
    """Black or white on a strong colour. The text colour of the page on faint colours of the ratio scale."""
    place = (value - colours.lowest) / (colours.highest - colours.lowest)
    if colours.scale is RATIO_SCALE:
        return ink_from_faint(2 * abs(place - 0.5), 2 * FAINT_HALF_WIDTH)
    return ON_LIGHT if place > 0.5 else ON_DARK


def _reading(value: float, metric: Metric) -> str:
    return "" if np.isnan(value) else f"<br>{READINGS[metric].cell.format(value)}"
