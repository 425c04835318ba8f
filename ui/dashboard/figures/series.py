"""Curves over steps or wall clock: step time, loss, tokens a second, utilisation, the user's own metrics.

strip       v     3                 events (figures/markers.py)
curve     __:__/''|__    ______
          0    100    200   300     the same axis in all charts of a page; no line where no step ran
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from ui.dashboard.chart_view import Axis, Scale
from ui.dashboard.events import RunEvent
from ui.dashboard.figures.markers import STRIP_PX, marker_lines, marker_trace, strip_axis
from ui.dashboard.figures.style import BLUE, GREY, SELECTED, TROUBLE, framed, plain, short, titled
from ui.dashboard.figures.x_axis import XAxis
from ui.dashboard.records import Floats, Ints, Series

MAX_POINTS, MAX_CROSSES = 1500, 100
MARKERS_BELOW = 3
HEIGHT_PX, TITLE_PX, BELOW_PX, LEFT_PX = 216, 26, 42, 62
DAY_PX = 14
"""Below the times of a wall clock is a line with the day."""
D2_DECADES = 2.5
"""A logarithmic axis of fewer decades has ticks at 1, 2 and 5 in each of them."""
MAX_GAPS, LEAST_GAP = 24, 0.004
"""Gaps that are shaded: the longest ones, if they are at least this part of the axis."""
FAINT_CURVE = 0.28
"""Opacity of a curve below its moving median."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A quantity by step. ``smooth``: its moving median."""

    name: str
    unit: str
    """Unit of the quantity. Empty if it has none, or if the unit is not known."""
    series: Series
    smooth: Series | None = None
    number: str = ".3f"
    """d3 format of a value."""
    tick: str = "~g"
    """d3 format of a tick."""
    from_zero: bool = True
    """Whether the axis starts at 0, so that a small change looks small."""
    scale: Scale = Scale.LINEAR
    title: str = ""
    """Title above the chart. Empty if the page shows the title."""


def curve_figure(
    curve: Curve,
    x_axis: XAxis,
    events: Sequence[RunEvent] = (),
    *,
    keep: str,
    chosen: tuple[int, int] | None = None,
) -> go.Figure:
    """The curve with the events of the run, and the steps or times ``chosen`` shaded. ``keep``: as in ``framed``."""
    markers = x_axis.markers(events)
    lines = [_line(curve, x_axis, curve.series, is_faint=curve.smooth is not None)]
    if curve.smooth is not None:
        lines.append(_line(curve, x_axis, curve.smooth, is_smooth=True))
    top_px = TITLE_PX * bool(curve.title) + 4
    height_px = HEIGHT_PX + TITLE_PX * bool(curve.title)
    below_px = BELOW_PX + DAY_PX * (x_axis.axis is Axis.TIME)
    strip = STRIP_PX / (height_px - top_px - below_px)
    return framed(
        [*lines, *_not_finite(curve.series, x_axis), marker_trace(markers)],
        height_px=height_px,
        keep=keep,
        hovermode="x",
        showlegend=False,
        margin={"l": LEFT_PX, "r": 24, "t": top_px, "b": below_px},
        xaxis=_shared_axis(x_axis),
        yaxis=_value_axis(curve) | {"domain": [0, 1 - strip]},
        yaxis2=strip_axis(strip),
        shapes=[*_gaps(x_axis), *_shaded(chosen, x_axis), *marker_lines(markers)],
        **({"title": _title(curve.title)} if curve.title else {}),
    )


def _shared_axis(x_axis: XAxis) -> dict[str, object]:
    """The x axis, with the ends that all charts share. The ends can grow while a user does not zoom, unlike a range."""
    first, last = x_axis.ends
    room = (last - first) * 0.01 or 0.5
    ends = {"minallowed": first - room, "maxallowed": last + room}
    pointer = {"showspikes": True, "spikemode": "across", "spikethickness": 1, "spikedash": "solid", "spikecolor": GREY}
    of_time = {"type": "date"} if x_axis.axis is Axis.TIME else {"type": "linear"}
    return {"nticks": 6, "title": x_axis.title, "anchor": "y", "autorangeoptions": ends, **pointer, **of_time}


def _value_axis(curve: Curve) -> dict[str, object]:
    shape: dict[str, object] = {"type": "linear", "nticks": 5, **({"rangemode": "tozero"} if curve.from_zero else {})}
    if curve.scale is Scale.LOG:
        finite = curve.series.value[np.isfinite(curve.series.value)]
        decades = float(np.log10(finite.max() / finite.min())) if len(finite) else 0.0
        shape = {"type": "log", **({"dtick": "D2"} if decades < D2_DECADES else {"nticks": 5})}
    title = titled(short(curve.name) + (f", {curve.unit}" if curve.unit else ""))
    return {"showgrid": True, "title": title, "tickformat": curve.tick, **shape}


def _title(text: str) -> dict[str, object]:
    place = {"x": 0, "xref": "container", "y": 1, "yref": "container", "yanchor": "top", "pad": {"t": 6, "l": 2}}
    return place | {"text": f"<b>{plain(text)}</b>", "font": {"size": 14}}


def _line(
    curve: Curve, x_axis: XAxis, series: Series, *, is_faint: bool = False, is_smooth: bool = False
) -> go.Scatter:
    drawn = x_axis.broken(series.where(kept_rows(series.value)))
    name = "median " if is_smooth else ""
    when = "%{x|%Y-%m-%d %H:%M:%S}, step %{customdata[1]} of attempt %{customdata[0]}"
    place = "step %{x}" if x_axis.axis is Axis.STEP else when
    of_attempt = np.column_stack((drawn.attempt, drawn.step)).astype(np.uint32)
    more = {} if x_axis.axis is Axis.STEP else {"customdata": of_attempt}
    return go.Scatter(
        x=x_axis.of(drawn.step, drawn.at_ns),
        y=drawn.value,
        mode="lines" if len(drawn.step) >= MARKERS_BELOW else "lines+markers",
        line={"color": BLUE, "width": 1.8},
        opacity=FAINT_CURVE if is_faint else 1,
        name=plain(short(curve.name)),
        hovertemplate=f"{place}<br><b>{name}%{{y:{curve.number}}} {curve.unit}</b><extra></extra>",
        **more,
    )


def _gaps(x_axis: XAxis) -> Iterator[dict[str, object]]:
    """Shades on the times in which no step ran."""
    if x_axis.axis is Axis.TIME:
        least = LEAST_GAP * (x_axis.last - x_axis.first)
        long = [gap for gap in x_axis.gaps_ns if gap[1] - gap[0] >= least]
        for gap in sorted(long, key=lambda gap: gap[0] - gap[1])[:MAX_GAPS]:
            yield _shade(gap, x_axis, GREY, 0.14)


def _shaded(chosen: tuple[int, int] | None, x_axis: XAxis) -> Iterator[dict[str, object]]:
    if chosen is not None:
        yield _shade(chosen, x_axis, SELECTED, 0.16)


def _shade(ends: tuple[int, int], x_axis: XAxis, colour: str, opacity: float) -> dict[str, object]:
    begin, end = x_axis.at(np.array(ends)).tolist()
    style = {"type": "rect", "fillcolor": colour, "opacity": opacity, "line": {"width": 0}, "layer": "below"}
    return style | {"x0": begin, "x1": end, "yref": "paper", "y0": 0, "y1": 1}


def _not_finite(series: Series, x_axis: XAxis) -> Iterator[go.Scatter]:
    """A cross at the last height where the values stop being finite. Plotly draws nothing there."""
    is_wrong = ~np.isfinite(series.value)
    begins = np.flatnonzero(is_wrong & ~np.concatenate([[False], is_wrong[:-1]]))[:MAX_CROSSES]
    if not len(begins):
        return
    finite = np.flatnonzero(~is_wrong)
    before = np.searchsorted(finite, begins) - 1
    height = series.value[finite[np.maximum(before, 0)]] if len(finite) else np.zeros(len(begins))
    yield go.Scatter(
        x=x_axis.of(series.step[begins], series.at_ns[begins]),
        y=height,
        mode="markers",
        marker={"symbol": "x", "size": 11, "color": TROUBLE},
        customdata=[[str(series.value[row]), int(series.step[row])] for row in begins],
        hovertemplate="from step %{customdata[1]} on<br><b>%{customdata[0]}</b><extra></extra>",
    )


def thinned(step: Ints, value: Floats) -> tuple[Ints, Floats]:
    """At most MAX_POINTS points. The smallest and the largest value of each block of steps are kept."""
    rows = kept_rows(value)
    return step[rows], value[rows]


def kept_rows(value: Floats) -> Ints:
    """The indexes of at most MAX_POINTS values: of the smallest and the largest of each block."""
    if len(value) <= MAX_POINTS:
        return np.arange(len(value))
    size = -(-2 * len(value) // MAX_POINTS)
    kept: set[int] = set()
    for first in range(0, len(value), size):
        block = np.nan_to_num(value[first : first + size])
        kept |= {first + int(block.argmin()), first + int(block.argmax())}
    return np.array(sorted(kept))
