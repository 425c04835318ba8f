"""Curves over steps: step time, loss, tokens a second, utilisation."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from ui.dashboard.figures.style import BLUE, EDGE_PX, GREY, TROUBLE, framed, plain
from ui.dashboard.records import Floats, Ints, MarkRow

MAX_POINTS, MAX_CROSSES = 1500, 100
MARKERS_BELOW = 3
HEIGHT_PX = 190
NAME_WIDTH = 0.12
"""Part of the axis that the name of a mark covers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A quantity by step."""

    name: str
    unit: str
    step: Ints
    value: Floats
    number: str = ".3f"
    """d3 format of a value."""
    from_zero: bool = True
    """Whether the axis starts at 0, so that a small change looks small."""


def curve_over_steps(curve: Curve, marks: Sequence[MarkRow], *, keep: str) -> go.Figure:
    """The curve, with a dotted line at each mark.

    A mark from before the first step of the curve, such as ``resumed``, is drawn at this step.
    """
    step, value = thinned(curve.step, curve.value)
    first, last = (int(step[0]), int(step[-1])) if len(step) else (0, 0)
    places = sorted({(max(mark.step, first), mark.name) for mark in marks})
    line = go.Scatter(
        x=step,
        y=value,
        mode="lines" if len(step) >= MARKERS_BELOW else "lines+markers",
        line={"color": BLUE, "width": 1.8},
        name=curve.name,
        hovertemplate=f"step %{{x}}<br><b>%{{y:{curve.number}}} {curve.unit}</b><extra></extra>",
    )
    wrong = _not_finite(curve)
    from_zero = {"rangemode": "tozero"} if curve.from_zero else {}
    return framed(
        [line, *wrong],
        height_px=HEIGHT_PX,
        keep=keep,
        hovermode="x",
        showlegend=False,
        margin={"r": 24, "t": 20 if marks else EDGE_PX},
        xaxis={"nticks": 6},
        yaxis={"nticks": 4, "ticksuffix": f" {curve.unit}" if curve.unit else "", "showgrid": True, **from_zero},
        shapes=[_mark_line(at) for at in sorted({at for at, _ in places})],
        annotations=[_mark_name(at, name) for at, name in _readable(places, last - first)],
    )


def _readable(places: Sequence[tuple[int, str]], num_steps: int) -> Iterator[tuple[int, str]]:
    """The marks whose names do not cover the name of an earlier mark."""
    free = float("-inf")
    for at, name in places:
        if at >= free:
            free = at + NAME_WIDTH * num_steps
            yield at, name


def _not_finite(curve: Curve) -> Iterator[go.Scatter]:
    """A cross at the last height where the values stop being finite. Plotly draws nothing there."""
    is_wrong = ~np.isfinite(curve.value)
    begins = np.flatnonzero(is_wrong & ~np.concatenate([[False], is_wrong[:-1]]))[:MAX_CROSSES]
    if not len(begins):
        return
    finite = np.flatnonzero(~is_wrong)
    before = np.searchsorted(finite, begins) - 1
    height = curve.value[finite[np.maximum(before, 0)]] if len(finite) else np.zeros(len(begins))
    yield go.Scatter(
        x=curve.step[begins],
        y=height,
        mode="markers",
        marker={"symbol": "x", "size": 11, "color": TROUBLE},
        customdata=[str(value) for value in curve.value[begins]],
        hovertemplate="from step %{x} on<br><b>%{customdata}</b><extra></extra>",
    )


def thinned(step: Ints, value: Floats) -> tuple[Ints, Floats]:
    """At most MAX_POINTS points. The smallest and the largest value of each block of steps are kept."""
    if len(step) <= MAX_POINTS:
        return step, value
    size = -(-2 * len(step) // MAX_POINTS)
    kept: set[int] = set()
    for first in range(0, len(step), size):
        block = np.nan_to_num(value[first : first + size])
        kept |= {first + int(block.argmin()), first + int(block.argmax())}
    chosen = np.array(sorted(kept))
    return step[chosen], value[chosen]


def _mark_line(at: int) -> dict[str, object]:
    line = {"color": GREY, "width": 1, "dash": "dot"}
    return {"type": "line", "x0": at, "x1": at, "yref": "paper", "y0": 0, "y1": 1, "line": line}


def _mark_name(at: int, name: str) -> dict[str, object]:
    place = {"x": at, "yref": "paper", "y": 1, "xanchor": "left", "yanchor": "bottom"}
    return place | {"text": plain(name[:24]), "showarrow": False, "font": {"size": 10, "color": GREY}}
