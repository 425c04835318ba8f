"""The 3D grid of ranks as a body that rotates: a mark per rank, and the groups of the chosen rank as lines.

    tp  dp          activations go along pp, from stage to stage
    | /             gradients come back the same way
    |/____ pp

With too many ranks only the outliers and, faintly, the slices through the chosen rank are drawn.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go

from telemetry.topology import AXES, Axis, Topology
from ui.dashboard.figures.grid import HOVER, hover_texts
from ui.dashboard.figures.grid_colours import UNKNOWN_COLOUR, GridColours
from ui.dashboard.figures.heat_map import colour_bar
from ui.dashboard.figures.style import BLUE, CLEAR, GREY, ON_LIGHT, SELECTED, framed
from ui.dashboard.records import Ints
from ui.dashboard.wording import replicas_text

MAX_CONES = 64
LINE_NAMES = {"tp": "its tensor group", "pp": "its pipeline: activations"}
LINE_COLOURS = {"tp": BLUE, "dp": "#b59f00", "pp": "#c95fa6"}
"""Dashes of such lines cannot be distinguished."""

Points = npt.NDArray[np.int16]
"""Shape [ranks, 3]: pp, dp, tp."""


def group_lines(at: Points, groups: Mapping[Axis, Sequence[int]], topology: Topology) -> Iterator[go.Scatter3d]:
    """A line through each group of the chosen rank."""
    names = {**LINE_NAMES, "dp": replicas_text(topology)}
    for axis, members in groups.items():
        if len(members) > 1:
            yield _line(at, members, names[axis], {"color": LINE_COLOURS[axis], "width": 7})


def wait_lines(at: Points, path: Sequence[int]) -> Iterator[go.Scatter3d]:
    """A line from the chosen rank to the root cause."""
    if len(path) > 1:
        yield _line(at, path, "waiting chain, to the root cause", {"color": SELECTED, "width": 9})


def _line(at: Points, ranks: Sequence[int], name: str, line: dict[str, object]) -> go.Scatter3d:
    x, y, z = at[list(ranks)].T
    return go.Scatter3d(x=x, y=y, z=z, mode="lines", line=line, name=name, hoverinfo="skip")


def cones(at: Points, path: Sequence[int]) -> Iterator[go.Cone]:
    """The direction, halfway between each rank and the next."""
    hops = np.array([(at[rank], at[on]) for rank, on in pairwise(path[: MAX_CONES + 1])], dtype=np.float64)
    if not len(hops):
        return
    (x, y, z), (u, v, w) = hops.mean(axis=1).T, (hops[:, 1] - hops[:, 0]).T
    far = np.sqrt(u**2 + v**2 + w**2)
    yield go.Cone(
        x=x,
        y=y,
        z=z,
        u=u / far,
        v=v / far,
        w=w / far,
        sizemode="absolute",
        sizeref=0.25,
        anchor="center",
        showscale=False,
        colorscale=[[0, SELECTED], [1, SELECTED]],
        hoverinfo="skip",
    )


def around(at: Points, chosen: int) -> go.Scatter3d:
    """A ring around the chosen rank."""
    x, y, z = at[[chosen]].T
    marker = {"symbol": "circle-open", "size": 28, "color": SELECTED, "line": {"color": SELECTED, "width": 4}}
    return go.Scatter3d(x=x, y=y, z=z, mode="markers", marker=marker, hoverinfo="skip", showlegend=False)


HEIGHT_PX = 620
DIAGONAL = 2.3
"""Diagonal of the body, in plotly's units."""
MAX_SEEN_THROUGH, MAX_NUMBERED = 2048, 64
"""The largest numbers of ranks that are all drawn, and that all have a number."""
FAINT_PX, NEAR_PX = 2.0, 4.0
MAX_SIGNS = 300
MAX_TICKS = 8
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
        hosts: by rank.
        path: the waiting chain of the chosen rank. Without it, arrows show the direction of activations.
    """
    at = _points(topology)
    hover = hover_texts(topology, cells, hosts)
    inside = [rank for rank in path if 0 <= rank < len(at)]
    groups = {axis: topology.group(chosen, along=axis) for axis in AXES}
    near = np.unique([*inside, *(rank for members in groups.values() for rank in members)])
    along = inside if len(inside) > 1 else groups["pp"]
    marks, lines = _marks(at, cells, hover, chosen, near), group_lines(at, groups, topology)
    edges = np.cbrt([topology.pp, topology.dp, topology.tp])
    length = dict(zip("xyz", (DIAGONAL * edges / np.linalg.norm(edges)).tolist(), strict=True))
    axes = {name: _axis(along, topology) for name, along in _DRAWN_ALONG.items()}
    return framed(
        [*marks, *lines, *wait_lines(at, inside), *cones(at, along), around(at, chosen)],
        height_px=HEIGHT_PX,
        keep=keep,
        margin={"l": 0, "r": 0, "t": 0, "b": 0},
        scene={
            "aspectmode": "manual",
            "aspectratio": length,
            "camera": CAMERA,
            "domain": {"y": [0.05, 1]},
            **axes,
        },
        legend={"orientation": "h", "y": 0, "x": 0, "bgcolor": CLEAR, "itemclick": False, "itemdoubleclick": False},
        dragmode="turntable",
        hovermode="closest",
        clickmode="event",
    )


_DRAWN_ALONG: dict[str, Axis] = {"xaxis": "pp", "yaxis": "dp", "zaxis": "tp"}


def _points(topology: Topology) -> Points:
    return np.stack([topology.index[axis] for axis in ("pp", "dp", "tp")], axis=1).astype(np.int16)


def _marks(
    at: Points, cells: GridColours, hover: npt.NDArray[np.object_], chosen: int, near: Ints
) -> Iterator[go.Scatter3d]:
    """Every rank. In a large grid: the ranks of the slices, larger those ``near``, and larger still the important
    ones."""
    size = float(np.clip(45 / np.cbrt(len(at)), NEAR_PX, 22))
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
    if len(at) <= MAX_NUMBERED:
        yield _numbers(at)


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


def _numbers(at: Points) -> go.Scatter3d:
    x, y, z = at.T
    return go.Scatter3d(
        x=x,
        y=y,
        z=z,
        mode="text",
        text=[f"<b>{rank}</b>" for rank in range(len(at))],
        textfont={"family": "sans-serif", "size": 14, "color": ON_LIGHT},
        textposition="middle center",
        hoverinfo="skip",
        showlegend=False,
    )


def _axis(along: Axis, topology: Topology) -> dict[str, object]:
    degree = getattr(topology, along)
    every = -(-degree // MAX_TICKS)
    ticks = list(range(0, degree, every))
    style = {"showbackground": False, "gridcolor": GREY, "zeroline": False, "showspikes": False, "color": GREY}
    room = {"range": [-0.6, degree - 0.4]}
    is_named = along == "dp" or along in dict(topology.mesh)
    texts = [topology.replica(tick) if along == "dp" else f"{along}{tick}" * is_named for tick in ticks]
    # Ticks name the axis. A title would be drawn over them.
    return style | room | {"title": {"text": ""}, "tickvals": ticks, "ticktext": texts}


def _opaque(scale: str | list[list[float | str]]) -> str | list[list[float | str]]:
    """Small marks in faint colours would be invisible."""
    if isinstance(scale, str):
        return scale
    return [
        [part, re.sub(r"rgba\((\d+),\s*(\d+),\s*(\d+),.*\)", r"rgb(\1,\2,\3)", str(colour))] for part, colour in scale
    ]
