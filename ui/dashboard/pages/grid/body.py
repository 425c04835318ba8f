"""The 3D grid of ranks as a body that rotates: a mark per rank, and the groups of the chosen rank as lines.

    tp  dp          activations go along pp, from stage to stage
    | /             gradients go in the opposite direction
    |/____ pp

With too many ranks only the outliers and, faintly, the slices through the chosen rank are drawn.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go

from telemetry.topology import Axis, Topology
from ui.dashboard.defaults import groups_of_rank
from ui.dashboard.figures.grid import HOVER, hover_texts
from ui.dashboard.figures.grid_colours import UNKNOWN_COLOUR, GridColours
from ui.dashboard.figures.heat_map import colour_bar
from ui.dashboard.figures.style import BLUE, CLEAR, GREY, ON_DARK, ON_LIGHT, SELECTED, framed
from ui.dashboard.records import Ints
from ui.dashboard.view_state import Group
from ui.dashboard.wording import group_text

MAX_CONES = 64
LINE_COLOURS = {Group.TP: BLUE, Group.DP: "#b59f00", Group.PP: "#c95fa6", Group.CP: "#7a67d8", Group.EP: "#a3582a"}
"""Groups have lines of different colours, because dashes of lines in 3D cannot be distinguished."""
BESIDE = {Group.CP: 0.16, Group.EP: -0.16}
"""Distance of a line from the middle of its ranks, along pp. Groups along cp and ep are part of the group along dp, so
their lines are beside its line."""
CHAIN_BESIDE = (0.0, 0.16, 0.16)
"""Distance of the waiting chain from the middle of its ranks, along pp, dp and tp. It is beside the lines of all
groups."""
CONE_DISTANCE = 0.5
"""Distance of a cone from the rank at which it points. No other rank is there."""

Points = npt.NDArray[np.float64]
"""Shape [ranks, 3]: pp, dp, tp."""


def group_lines(
    at: Points, groups: Mapping[Group, Sequence[int]], topology: Topology, chosen: int
) -> Iterator[go.Scatter3d]:
    """A line through each group of the chosen rank. Points are at the members if other ranks are between them."""
    for group, members in groups.items():
        style: dict[str, object] = {"line": {"color": LINE_COLOURS[group], "width": 7}}
        if group in BESIDE:
            style |= {"mode": "lines+markers", "marker": {"size": 5, "color": LINE_COLOURS[group]}}
        yield _line(
            at + np.array([BESIDE.get(group, 0.0), 0.0, 0.0]), members, group_text(group, chosen, topology), **style
        )


def wait_lines(at: Points, path: Sequence[int]) -> Iterator[go.Scatter3d]:
    """A line from the chosen rank to the root cause."""
    if len(path) > 1:
        name = f"waiting chain from rank {path[0]} to the root cause"
        yield _line(at + CHAIN_BESIDE, path, name, line={"color": SELECTED, "width": 9})


def _line(at: Points, ranks: Sequence[int], name: str, **style: object) -> go.Scatter3d:
    x, y, z = at[list(ranks)].T
    return go.Scatter3d(**{"x": x, "y": y, "z": z, "mode": "lines", "name": name, "hoverinfo": "skip", **style})


def cones(at: Points, path: Sequence[int]) -> Iterator[go.Cone]:
    """The direction from each rank to the next, near the next one."""
    hops = np.array([(at[rank], at[on]) for rank, on in pairwise(path[: MAX_CONES + 1])])
    if not len(hops):
        return
    way = hops[:, 1] - hops[:, 0]
    unit = way / np.linalg.norm(way, axis=1, keepdims=True)
    (x, y, z), (u, v, w) = (hops[:, 1] - CONE_DISTANCE * unit).T, unit.T
    yield go.Cone(
        x=x,
        y=y,
        z=z,
        u=u,
        v=v,
        w=w,
        sizemode="absolute",
        sizeref=0.25,
        anchor="center",
        showscale=False,
        colorscale=[[0, SELECTED], [1, SELECTED]],
        hoverinfo="skip",
    )


def around(at: Points, chosen: int, size: float) -> go.Scatter3d:
    """A ring around the chosen rank, whose mark has this size."""
    x, y, z = at[[chosen]].T
    marker = {"symbol": "circle-open", "size": size + 6, "color": SELECTED, "line": {"color": SELECTED, "width": 4}}
    return go.Scatter3d(x=x, y=y, z=z, mode="markers", marker=marker, hoverinfo="skip", showlegend=False)


HEIGHT_PX = 620
DIAGONAL = 2.3
"""Diagonal of the body, in plotly's units."""
MARK_IN_UNIT = 48
"""The largest size of a mark whose neighbour is one of plotly's units away. So marks of neighbours do not overlap."""
MAX_SEEN_THROUGH, MAX_NUMBERED = 2048, 64
"""The largest numbers of ranks that are all drawn, and that all have a number."""
FAINT_PX, NEAR_PX = 2.0, 4.0
MAX_SIGNS = 300
MAX_TICKS = 8
BORDER = 0.6
"""Room outside the first and the last rank of a direction. The distance of ranks is 1."""
CAMERA = {
    "eye": {"x": 1.15, "y": -1.75, "z": 0.95},
    "center": {"x": 0, "y": 0, "z": -0.04},
    "projection": {"type": "orthographic"},
}


def rank_body(
    topology: Topology,
    cells: GridColours,
    hosts: Sequence[str],
    *,
    chosen: int,
    path: Sequence[int],
    keep: str,
) -> go.Figure:
    """One mark for each rank.

    Args:
        hosts: the host of each rank.
        path: the waiting chain of the chosen rank. Without it, arrows show the direction of activations.
    """
    at = _points(topology)
    hover = hover_texts(topology, cells, hosts)
    inside = [rank for rank in path if 0 <= rank < len(at)]
    groups = dict(groups_of_rank(topology, chosen))
    near = np.unique([*inside, chosen, *(rank for members in groups.values() for rank in members)])
    arrows = cones(at + CHAIN_BESIDE, inside) if len(inside) > 1 else cones(at, topology.group(chosen, along="pp"))
    sides = _sides(topology)
    size = _mark_size(topology, sides)
    marks, lines = _marks(at, cells, hover, chosen, near, size), group_lines(at, groups, topology, chosen)
    axes = {name: _axis(along, topology) for name, along in _DRAWN_ALONG.items()}
    return framed(
        [*marks, *lines, *wait_lines(at, inside), *arrows, around(at, chosen, size)],
        height_px=HEIGHT_PX,
        keep=keep,
        margin={"l": 0, "r": 0, "t": 0, "b": 0},
        scene={
            "aspectmode": "manual",
            "aspectratio": dict(zip("xyz", sides, strict=True)),
            "camera": CAMERA,
            "domain": {"y": [0.05, 1]},
            "annotations": _numbers(at, topology, cells, chosen),
            **axes,
        },
        legend={"orientation": "h", "y": 0, "x": 0, "bgcolor": CLEAR, "itemclick": False, "itemdoubleclick": False},
        dragmode="turntable",
        hovermode="closest",
        clickmode="event",
    )


_DRAWN_ALONG: dict[str, Axis] = {"xaxis": "pp", "yaxis": "dp", "zaxis": "tp"}


def _points(topology: Topology) -> Points:
    return np.stack([topology.index[axis] for axis in _DRAWN_ALONG.values()], axis=1).astype(np.float64)


def _degrees(topology: Topology) -> Ints:
    return np.array([getattr(topology, axis) for axis in _DRAWN_ALONG.values()])


def _sides(topology: Topology) -> list[float]:
    """The lengths of the body along x, y and z, in plotly's units."""
    edges = np.cbrt(_degrees(topology))
    return [float(side) for side in DIAGONAL * edges / np.linalg.norm(edges)]


def _mark_size(topology: Topology, sides: Sequence[float]) -> float:
    """The size of the mark of a rank. It is smaller if many ranks are in one direction."""
    degrees = _degrees(topology)
    apart = (np.array(sides) / (degrees + 2 * BORDER - 1))[degrees > 1]
    largest = min(45 / np.cbrt(topology.world_size), MARK_IN_UNIT * apart.min(initial=np.inf))
    return float(np.clip(largest, NEAR_PX, 22))


def _marks(
    at: Points, cells: GridColours, hover: npt.NDArray[np.object_], chosen: int, near: Ints, size: float
) -> Iterator[go.Scatter3d]:
    """The marks of all ranks. In a large grid, only small marks of the ranks in the slices, larger marks of the ranks
    in ``near``, and still larger marks of the important ranks."""
    if len(at) <= MAX_SEEN_THROUGH:
        yield from _coloured(np.arange(len(at)), at, cells, hover, {"size": size, "opacity": 0.75})
    else:
        in_slices = np.flatnonzero((at == at[chosen]).any(axis=1))
        far = np.setdiff1d(in_slices, near)
        yield from _coloured(far, at, cells, hover, {"size": FAINT_PX, "opacity": 0.35})
        yield from _coloured(near, at, cells, hover, {"size": NEAR_PX, "opacity": 1.0})
    if 0 < len(cells.signs) <= MAX_SIGNS:
        style = {"size": 1.4 * size + 3, "symbol": "diamond", "opacity": 1.0}
        yield from _coloured(np.array(sorted(cells.signs), dtype=np.int64), at, cells, hover, style)


def _coloured(
    ranks: Ints, at: Points, cells: GridColours, hover: npt.NDArray[np.object_], style: Mapping[str, object]
) -> Iterator[go.Scatter3d]:
    """Two traces: ranks with a known value, and ranks without."""
    value, colours = cells.value[ranks], cells.colours
    known = np.isfinite(value)
    if known.any():
        marker = {
            **style,
            "color": value[known].astype(np.float32),
            "cmin": colours.lowest,
            "cmax": colours.highest,
            "colorscale": _opaque(colours.scale),
            "showscale": cells.is_scale,
            "colorbar": colour_bar(colours),
        }
        yield _points_of(ranks[known], at, hover, marker)
    if not known.all():
        yield _points_of(ranks[~known], at, hover, {**style, "color": UNKNOWN_COLOUR})


def _points_of(ranks: Ints, at: Points, hover: npt.NDArray[np.object_], marker: dict[str, object]) -> go.Scatter3d:
    x, y, z = at[ranks].T
    return go.Scatter3d(
        x=x,
        y=y,
        z=z,
        mode="markers",
        marker=marker | {"line": {"width": 0}},
        customdata=[[rank, rank] for rank in ranks.tolist()],
        text=hover[ranks].tolist(),
        hovertemplate=HOVER,
        showlegend=False,
    )


def _numbers(at: Points, topology: Topology, cells: GridColours, chosen: int) -> list[dict[str, object]]:
    """The numbers of the ranks at ticks of the axes, and of the chosen rank. They are drawn over marks and lines."""
    if len(at) > MAX_NUMBERED:
        return []
    at_ticks = (at % -(-_degrees(topology) // MAX_TICKS) == 0).all(axis=1)
    return [
        {"x": x, "y": y, "z": z, "text": f"<b>{rank}</b>", "showarrow": False}
        | {"font": {"size": 14, "color": ON_DARK if cells.inks[rank] == ON_DARK else ON_LIGHT}}
        for rank, (x, y, z) in enumerate(at.tolist())
        if at_ticks[rank] or rank == chosen
    ]


def _axis(along: Axis, topology: Topology) -> dict[str, object]:
    degree = getattr(topology, along)
    every = -(-degree // MAX_TICKS)
    ticks = list(range(0, degree, every))
    style = {"showbackground": False, "gridcolor": GREY, "zeroline": False, "showspikes": False, "color": GREY}
    room = {"range": [-BORDER, degree - 1 + BORDER]}
    is_named = along == "dp" or along in dict(topology.mesh)
    texts = [topology.replica(tick) if along == "dp" else f"{along}{tick}" * is_named for tick in ticks]
    # Ticks name the axis. A title would be drawn over them.
    return style | room | {"title": {"text": ""}, "tickvals": ticks, "ticktext": texts}


def _opaque(scale: str | list[list[float | str]]) -> str | list[list[float | str]]:
    """A colour scale without transparency. Small marks in faint colours would be invisible."""
    if isinstance(scale, str):
        return scale
    return [
        [part, re.sub(r"rgba\((\d+),\s*(\d+),\s*(\d+),.*\)", r"rgb(\1,\2,\3)", str(colour))] for part, colour in scale
    ]
