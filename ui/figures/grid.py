"""The 3D grid of ranks, each coloured by what it is to a hang."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import plotly.graph_objects as go

from telemetry.topology import Topology
from ui.figures.grid_layout import MIN_COLUMNS, WIDTH_PX, GridLayout, lay_out
from ui.figures.standing import REMARKABLE, SIGNS, Standing
from ui.figures.style import CLEAR, FONT, GREY, SUSPECT, framed, outline, plain
from ui.records import Ints

WORDED_PX, NUMBERED_PX = 44, 24
"""Cells large enough for a word, for a number."""
ZOOMED_FROM = 512
"""Ranks from which on it is worth zooming in."""
MAX_TICKS, MAX_MARKERS, MAX_ARROWS = 24, 300, 24
TOP_PX, BAND_PX, BOTTOM_PX, OUTLINE_PX = 26, 18, 30, 8
EDGE = 0.4
"""From the middle of a cell to where no word stands."""

Point = tuple[float, float]


def rank_grid(
    topology: Topology,
    standings: Sequence[Standing],
    hosts: Sequence[str],
    *,
    chosen: int | None,
    path: Sequence[int],
    keep: str,
) -> go.Figure:
    """One cell a rank. ``standings`` and ``hosts`` by rank; ``path``: ranks from the chosen one to the root."""
    layout = lay_out(topology)
    row, column = _positions(layout)
    figure = go.Figure(_cells(layout, row, column, standings, hosts))
    if layout.cell_px < NUMBERED_PX:
        _add_markers(figure, row, column, standings)
    _set_axes(figure, layout)
    figure.update_layout(
        shapes=[] if chosen is None else [_around(int(row[chosen]), int(column[chosen]), layout)],
        annotations=[*_headers(layout), *_texts(layout, row, column, standings), *_arrows(row, column, path, layout)],
    )
    bands_px = BAND_PX if layout.num_bands > 1 else 0
    height = int(layout.cell_px * layout.rows) + TOP_PX + bands_px + BOTTOM_PX
    zoomed = topology.world_size >= ZOOMED_FROM
    return framed(
        figure,
        height_px=height,
        keep=keep,
        margin={"l": 8, "r": 8, "t": TOP_PX + bands_px, "b": 8},
        dragmode="zoom" if zoomed else False,
        clickmode="event",
        hovermode="closest",
        showlegend=False,
    )


def _positions(layout: GridLayout) -> tuple[Ints, Ints]:
    at = [layout.at(layout.topology.place(rank)) for rank in range(layout.topology.world_size)]
    rows, columns = np.array(at, dtype=np.int64).T
    return rows, columns


def _cells(
    layout: GridLayout, row: Ints, column: Ints, standings: Sequence[Standing], hosts: Sequence[str]
) -> go.Heatmap:
    codes = {standing: code for code, standing in enumerate(Standing)}
    colour = np.full((layout.rows, layout.columns), np.nan, dtype=np.float32)
    ranks = np.full((layout.rows, layout.columns, 2), -1, dtype=np.int32)
    words = np.full((layout.rows, layout.columns), "", dtype=object)
    colour[row, column] = [codes[standing] for standing in standings]
    ranks[row, column, 0] = np.arange(len(row))
    words[row, column] = [
        f"{plain(host or 'host unknown')}<br>{layout.topology.place(rank)}<br>{standing}"
        for rank, (host, standing) in enumerate(zip(hosts, standings, strict=True))
    ]
    gap = 3 if layout.cell_px >= NUMBERED_PX else 1
    return go.Heatmap(
        z=colour,
        customdata=ranks,
        text=words.tolist(),
        zmin=-0.5,
        zmax=len(codes) - 0.5,
        colorscale=_colour_steps(),
        showscale=False,
        xgap=gap,
        ygap=gap,
        hoverongaps=False,
        hovertemplate="<b>rank %{customdata[0]}</b><br>%{text}<extra></extra>",
    )


def _colour_steps() -> list[list[float | str]]:
    """A scale with one flat step a standing."""
    parts = len(Standing)
    return [
        [edge / parts, SIGNS[standing].colour]
        for code, standing in enumerate(Standing)
        for edge in (float(code), float(code + 1))
    ]


def _add_markers(figure: go.Figure, row: Ints, column: Ints, standings: Sequence[Standing]) -> None:
    """What matters, larger than its cell; the cell below takes the clicks."""
    marked = [rank for rank, standing in enumerate(standings) if standing in REMARKABLE]
    if not 0 < len(marked) <= MAX_MARKERS:
        return
    signs = [SIGNS[standings[rank]] for rank in marked]
    marker = {
        "symbol": [sign.marker for sign in signs],
        "color": [sign.colour for sign in signs],
        "size": 13,
        "line": {"color": "#ffffff", "width": 1.5},
    }
    figure.add_trace(
        go.Scatter(x=column[marked], y=row[marked], mode="markers", marker=marker, hoverinfo="skip", cliponaxis=False)
    )


def _set_axes(figure: go.Figure, layout: GridLayout) -> None:
    fixed = layout.topology.world_size < ZOOMED_FROM
    edge = _reach(layout) + 2 / layout.cell_px
    right = max(layout.columns, MIN_COLUMNS) - 1 + edge
    figure.update_xaxes(range=[-edge, right], fixedrange=fixed, showline=False, **_tp_ticks(layout))
    figure.update_yaxes(range=[layout.rows - 1 + edge, -edge], fixedrange=fixed, showgrid=False, **_dp_ticks(layout))


def _tp_ticks(layout: GridLayout) -> dict[str, list[int] | list[str]]:
    if layout.columns * 24 > WIDTH_PX:
        return {"tickvals": [], "ticktext": []}
    starts = [
        band * layout.band + stage * layout.block
        for band in range(layout.num_bands)
        for stage in range(layout.pp_a_line)
    ]
    columns = [(start + tp, f"tp{tp}") for start in starts for tp in range(layout.topology.tp)]
    return {"tickvals": [column for column, _ in columns], "ticktext": [text for _, text in columns]}


def _dp_ticks(layout: GridLayout) -> dict[str, list[int] | list[str]]:
    """Replicas of the first band; the bands after it say in their head where they begin."""
    every = -(-layout.rows // MAX_TICKS)
    rows = [
        (line * (layout.dp_a_band + 1) + dp, f"dp{dp}")
        for line in range(layout.num_lines)
        for dp in range(0, layout.dp_a_band, every)
    ]
    return {"tickvals": [row for row, _ in rows], "ticktext": [text for _, text in rows]}


def _headers(layout: GridLayout) -> list[dict[str, object]]:
    """``pp0`` over each stage's block, ``dp 0-95`` over each band where there are several."""
    found = []
    for band in range(layout.num_bands):
        if layout.num_bands > 1:
            first, end = band * layout.dp_a_band, min((band + 1) * layout.dp_a_band, layout.topology.dp)
            found.append(_head(band * layout.band, 0, f"<b>dp {first}-{end - 1}</b>") | {"yshift": BAND_PX})
        if layout.block * layout.cell_px < 30:
            continue
        for pp in range(layout.topology.pp):
            line, stage = divmod(pp, layout.pp_a_line)
            found.append(_head(band * layout.band + stage * layout.block, line * (layout.dp_a_band + 1), f"pp{pp}"))
    return found


def _head(column: int, row: int, text: str) -> dict[str, object]:
    place = {"x": column - 0.5, "y": row - 0.5, "xanchor": "left", "yanchor": "bottom", "showarrow": False}
    return place | {"text": text, "font": {"family": FONT, "size": 12, "color": GREY}}


def _texts(layout: GridLayout, row: Ints, column: Ints, standings: Sequence[Standing]) -> list[dict[str, object]]:
    if layout.cell_px < NUMBERED_PX or len(standings) > ZOOMED_FROM:
        return []
    worded = layout.cell_px >= WORDED_PX
    return [
        {"x": int(column[rank]), "y": int(row[rank]), "showarrow": False}
        | {"text": _text(rank, standing, worded), "font": {"color": SIGNS[standing].ink, "size": 12 if worded else 9}}
        for rank, standing in enumerate(standings)
    ]


def _text(rank: int, standing: Standing, worded: bool) -> str:
    symbol = SIGNS[standing].symbol
    if worded:
        return f"<b>{rank}</b><br>{symbol} {standing}"
    return f"<b>{symbol}<br>{rank}</b>" if standing in REMARKABLE else str(rank)


def _around(row: int, column: int, layout: GridLayout) -> Mapping[str, object]:
    """The chosen rank's outline: the style sheet gives it the page's text colour."""
    reach = _reach(layout)
    return outline(column - reach, column + reach, row - reach, row + reach, colour=SUSPECT, width_px=3)


def _reach(layout: GridLayout) -> float:
    """From the middle of a cell to an outline that can be seen."""
    return max(0.5, OUTLINE_PX / layout.cell_px)


def _arrows(row: Ints, column: Ints, path: Sequence[int], layout: GridLayout) -> list[dict[str, object]]:
    """From each rank that waits to the one it waits for. Evidence may tell of a rank that the grid does not have."""
    worded = layout.cell_px >= WORDED_PX
    look = {"xref": "x", "yref": "y", "axref": "x", "ayref": "y", "text": "", "bgcolor": CLEAR, "showarrow": True}
    look |= {"arrowhead": 2, "arrowsize": 1.1, "arrowwidth": 2.2, "arrowcolor": GREY}
    found = []
    hops = [(rank, on) for rank, on in pairwise(path) if min(rank, on) >= 0 and max(rank, on) < len(row)]
    for rank, on in hops[:MAX_ARROWS]:
        tail = (float(column[rank]), float(row[rank]))
        head = (float(column[on]), float(row[on]))
        if worded:
            tail, head = _clear_of_words(tail, head)
        off_px = 0 if worded else 12
        ends = {"ax": tail[0], "ay": tail[1], "x": head[0], "y": head[1], "standoff": off_px, "startstandoff": off_px}
        found.append(look | ends)
    return found


def _clear_of_words(tail: Point, head: Point) -> tuple[Point, Point]:
    """From edge to edge of two cells; where others lie between, along the gap beside them."""
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
