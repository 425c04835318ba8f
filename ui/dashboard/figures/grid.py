"""The 3D grid of ranks as slices side by side, one cell per rank.

The chosen rank, its groups, and arrows from rank to rank are drawn over the cells.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go

from telemetry.topology import Topology
from ui.dashboard.figures.grid_colours import UNKNOWN_COLOUR, GridColours
from ui.dashboard.figures.grid_layout import MIN_COLUMNS, WIDTH_PX, GridLayout, lay_out
from ui.dashboard.figures.grid_outlines import around, around_groups, reach
from ui.dashboard.figures.heat_map import colour_bar
from ui.dashboard.figures.style import CLEAR, FONT, GREY, framed, plain
from ui.dashboard.records import Ints

WORDED_PX = 44
"""The smallest cell with text."""
MAX_ARROWS = 24
EDGE = 0.4
"""Distance from the middle of a cell to its edge without text."""

Point = tuple[float, float]


def arrows_along(row: Ints, column: Ints, path: Sequence[int], layout: GridLayout) -> list[dict[str, object]]:
    """An arrow from each rank of ``path`` to the next. Ranks outside the grid are skipped."""
    worded = layout.cell_px >= WORDED_PX
    style = {"xref": "x", "yref": "y", "axref": "x", "ayref": "y", "text": "", "bgcolor": CLEAR, "showarrow": True}
    style |= {"arrowhead": 2, "arrowsize": 1.1, "arrowwidth": 2.2, "arrowcolor": GREY}
    found = []
    hops = [(rank, on) for rank, on in pairwise(path) if min(rank, on) >= 0 and max(rank, on) < len(row)]
    for rank, on in hops[:MAX_ARROWS]:
        tail = (float(column[rank]), float(row[rank]))
        head = (float(column[on]), float(row[on]))
        if worded:
            tail, head = _clear_of_words(tail, head)
        off_px = 0 if worded else 12
        ends = {"ax": tail[0], "ay": tail[1], "x": head[0], "y": head[1], "standoff": off_px, "startstandoff": off_px}
        found.append(style | ends)
    return found


def _clear_of_words(tail: Point, head: Point) -> tuple[Point, Point]:
    """Ends of an arrow between two cells that cross no text."""
    across, down = head[0] - tail[0], head[1] - tail[1]
    far = max(abs(across), abs(down))
    if far > 1 and not down:
        return (tail[0], tail[1] - EDGE), (head[0], head[1] - EDGE)
    if far > 1 and not across:
        return (tail[0] - EDGE, tail[1]), (head[0] - EDGE, head[1])
    part = 0.32 / max(far, 1e-9)
    return (
        (tail[0] + part * across, tail[1] + part * down),
        (head[0] - part * across, head[1] - part * down),
    )


NUMBERED_PX = 24
"""The smallest cell with a number."""
ZOOMED_FROM = 512
"""A grid with at least this many ranks can be zoomed."""
MAX_TICKS, MAX_MARKERS = 24, 300
HOVER = "<b>rank %{customdata[0]}</b><br>%{text}<extra></extra>"
TOP_PX, BAND_PX, BOTTOM_PX = 26, 18, 30


def rank_grid(
    topology: Topology,
    cells: GridColours,
    hosts: Sequence[str],
    *,
    chosen: int | None,
    path: Sequence[int],
    keep: str,
    with_groups: bool = False,
) -> go.Figure:
    """One cell for each rank.

    Args:
        hosts: the host of each rank.
        path: ranks along which arrows lead.
        with_groups: outline the groups of the chosen rank.
    """
    layout = lay_out(topology)
    row, column = _positions(layout)
    markers = _markers(row, column, cells) if layout.cell_px < NUMBERED_PX else []
    bands_px = BAND_PX if layout.num_bands > 1 else 0
    height = int(layout.cell_px * layout.rows) + TOP_PX + bands_px + BOTTOM_PX
    zoomed = topology.world_size >= ZOOMED_FROM
    return framed(
        [*_cells(layout, row, column, cells, hosts), *markers],
        height_px=height,
        keep=keep,
        margin={"t": TOP_PX + bands_px, "b": BOTTOM_PX},
        dragmode="zoom" if zoomed else False,
        clickmode="event",
        shapes=[] if chosen is None else _outlines(chosen, layout, with_groups),
        annotations=[*_headers(layout), *_texts(layout, row, column, cells), *arrows_along(row, column, path, layout)],
        **_axes(layout),
        hovermode="closest",
        showlegend=False,
    )


def _positions(layout: GridLayout) -> tuple[Ints, Ints]:
    index = layout.topology.index
    return layout.rows_and_columns(index["dp"], index["pp"], index["tp"])


def _outlines(chosen: int, layout: GridLayout, with_groups: bool) -> list[Mapping[str, object]]:
    row, column = layout.at(layout.topology.place(chosen))
    groups = around_groups(chosen, layout) if with_groups else []
    return [*groups, around(row, column, layout)]


def _cells(layout: GridLayout, row: Ints, column: Ints, cells: GridColours, hosts: Sequence[str]) -> list[go.Heatmap]:
    """Two traces: ranks with a known value, and ranks without."""
    shape = layout.rows, layout.columns
    ranks = np.full((*shape, 2), -1, dtype=np.int32)
    ranks[row, column, 0] = np.arange(len(row))
    hover = hover_texts(layout.topology, cells, hosts)
    known = np.isfinite(cells.value)
    gap = 3 if layout.cell_px >= NUMBERED_PX else 1
    style = {"customdata": ranks, "hoverongaps": False, "hovertemplate": HOVER, "xgap": gap, "ygap": gap}
    found = []
    for which, coloured in ((known, cells), (~known, None)):
        if not which.any():
            continue
        value = np.full(shape, np.nan, dtype=np.float32)
        text = np.full(shape, "", dtype=object)
        value[row[which], column[which]] = 0 if coloured is None else cells.value[which]
        text[row[which], column[which]] = hover[which]
        found.append(go.Heatmap(z=value, text=text.tolist(), **style, **_colouring(coloured)))
    return found


def hover_texts(topology: Topology, cells: GridColours, hosts: Sequence[str]) -> npt.NDArray[np.object_]:
    """The text below the rank number when the pointer is on a rank; by rank. A single line keeps it short."""
    return np.array(
        [
            f"{plain(host or 'host unknown')}, {place}; {text}"
            for host, place, text in zip(hosts, _places(topology), cells.hover, strict=True)
        ],
        dtype=object,
    )


@lru_cache(maxsize=4)
def _places(topology: Topology) -> tuple[str, ...]:
    """The coordinates of each rank in words. They take most of the time of the texts of a large grid."""
    return tuple(map(topology.describe, range(topology.world_size)))


def _colouring(cells: GridColours | None) -> dict[str, Any]:
    if cells is None:
        return {"colorscale": [[0, UNKNOWN_COLOUR], [1, UNKNOWN_COLOUR]], "showscale": False}
    colours = cells.colours
    return {
        "zmin": colours.lowest,
        "zmax": colours.highest,
        "colorscale": colours.scale,
        "showscale": cells.is_scale,
        "colorbar": colour_bar(colours),
    }


def _markers(row: Ints, column: Ints, cells: GridColours) -> list[go.Scatter]:
    """Large markers for important ranks. Clicks go to the cells below."""
    marked = sorted(cells.signs)
    if not 0 < len(marked) <= MAX_MARKERS:
        return []
    signs = [cells.signs[rank] for rank in marked]
    marker = {
        "symbol": [sign.marker for sign in signs],
        "color": [sign.colour for sign in signs],
        "size": 13,
        "line": {"color": "#ffffff", "width": 1.5},
    }
    return [
        go.Scatter(x=column[marked], y=row[marked], mode="markers", marker=marker, hoverinfo="skip", cliponaxis=False)
    ]


def _axes(layout: GridLayout) -> dict[str, dict[str, object]]:
    fixed = layout.topology.world_size < ZOOMED_FROM
    edge = reach(layout) + 2 / layout.cell_px
    right = max(layout.columns, MIN_COLUMNS) - 1 + edge
    of_rows: dict[str, object] = {"range": [layout.rows - 1 + edge, -edge], "fixedrange": fixed, "showgrid": False}
    return {
        "xaxis": {"range": [-edge, right], "fixedrange": fixed, "showline": False, **_tp_ticks(layout)},
        "yaxis": of_rows | _dp_ticks(layout),
    }


def _has(topology: Topology, name: str) -> bool:
    return name in dict(topology.mesh)


def _tp_ticks(layout: GridLayout) -> dict[str, list[int] | list[str]]:
    if layout.columns * 24 > WIDTH_PX or not _has(layout.topology, "tp"):
        return {"tickvals": [], "ticktext": []}
    starts = [
        band * layout.band + stage * layout.block
        for band in range(layout.num_bands)
        for stage in range(layout.pp_a_line)
    ]
    columns = [(start + tp, f"tp{tp}") for start in starts for tp in range(layout.topology.tp)]
    return {"tickvals": [column for column, _ in columns], "ticktext": [text for _, text in columns]}


def _dp_ticks(layout: GridLayout) -> dict[str, list[int] | list[str]]:
    """Replicas of the first band. The headers of other bands show where they begin."""
    every = -(-layout.rows // MAX_TICKS)
    rows = [
        (line * (layout.dp_a_band + 1) + dp, layout.topology.replica(dp))
        for line in range(layout.num_lines)
        for dp in range(0, layout.dp_a_band, every)
    ]
    return {"tickvals": [row for row, _ in rows], "ticktext": [text for _, text in rows]}


def _headers(layout: GridLayout) -> list[dict[str, object]]:
    """``pp0`` above each block. ``dp 0-95`` above each band if there are several."""
    found = []
    for band in range(layout.num_bands):
        if layout.num_bands > 1:
            first, end = band * layout.dp_a_band, min((band + 1) * layout.dp_a_band, layout.topology.dp)
            found.append(
                _head(band * layout.band, 0, f"<b>{layout.topology.replica_axes} {first}-{end - 1}</b>")
                | {"yshift": BAND_PX}
            )
        if layout.block * layout.cell_px < 30 or not _has(layout.topology, "pp"):
            continue
        for pp in range(layout.topology.pp):
            line, stage = divmod(pp, layout.pp_a_line)
            found.append(_head(band * layout.band + stage * layout.block, line * (layout.dp_a_band + 1), f"pp{pp}"))
    return found


def _head(column: int, row: int, text: str) -> dict[str, object]:
    place = {"x": column - 0.5, "y": row - 0.5, "xanchor": "left", "yanchor": "bottom", "showarrow": False}
    return place | {"text": text, "font": {"family": FONT, "size": 12, "color": GREY}}


def _texts(layout: GridLayout, row: Ints, column: Ints, cells: GridColours) -> list[dict[str, object]]:
    if layout.cell_px < NUMBERED_PX or len(row) > ZOOMED_FROM:
        return []
    worded = layout.cell_px >= WORDED_PX
    return [
        {"x": int(column[rank]), "y": int(row[rank]), "showarrow": False}
        | {"text": _text(rank, cells, worded), "font": {"color": ink, "size": 12 if worded else 9}}
        for rank, ink in enumerate(cells.inks)
    ]


def _text(rank: int, cells: GridColours, worded: bool) -> str:
    if worded:
        return f"<b>{rank}</b><br>{cells.short[rank]}"
    return f"<b>{cells.signs[rank].symbol}<br>{rank}</b>" if rank in cells.signs else str(rank)
