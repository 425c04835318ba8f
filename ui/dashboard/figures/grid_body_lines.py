"""Lines through the body of ranks: the chosen rank's groups, whom it waits for, and which way it goes."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go

from telemetry.topology import Axis
from ui.dashboard.figures.style import BLUE, SELECTED

MAX_CONES = 64
LINE_NAMES = {"tp": "its tensor group", "pp": "its pipeline: activations", "dp": "the replicas of its place"}
DASHES = {"tp": "solid", "dp": "dash", "pp": "dot"}

Points = npt.NDArray[np.int16]
"""Shape [ranks, 3]: pp, dp, tp."""


def group_lines(at: Points, groups: Mapping[Axis, Sequence[int]]) -> Iterator[go.Scatter3d]:
    """The chosen rank's, by axis."""
    for axis, members in groups.items():
        if len(members) > 1:
            yield _line(at, members, LINE_NAMES[axis], {"color": BLUE, "width": 6, "dash": DASHES[axis]})


def wait_lines(at: Points, path: Sequence[int]) -> Iterator[go.Scatter3d]:
    """From the chosen rank to the root."""
    if len(path) > 1:
        yield _line(at, path, "whom it waits for, to the root", {"color": SELECTED, "width": 9})


def _line(at: Points, ranks: Sequence[int], name: str, line: dict[str, object]) -> go.Scatter3d:
    x, y, z = at[list(ranks)].T
    return go.Scatter3d(x=x, y=y, z=z, mode="lines", line=line, name=name, hoverinfo="skip")


def cones(at: Points, path: Sequence[int]) -> Iterator[go.Cone]:
    """Which way it goes, halfway between each rank and the next."""
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
    """A ring about the chosen rank."""
    x, y, z = at[[chosen]].T
    marker = {"symbol": "circle-open", "size": 28, "color": SELECTED, "line": {"color": SELECTED, "width": 4}}
    return go.Scatter3d(x=x, y=y, z=z, mode="markers", marker=marker, hoverinfo="skip", showlegend=False)
