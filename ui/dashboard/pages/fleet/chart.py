"""One host over some steps: the steps of its ranks and, below on the same time axis, the samples of the host.

step     ___/''|________|_____      from spans
gpu0     ___________    |           from samples; a labelled line for each event
gpu1     ----------------
         12:03:40     12:03:50      all on the host's own clock: no alignment is needed
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import plotly.graph_objects as go

from ui.dashboard.figures.series import MARKERS_BELOW
from ui.dashboard.figures.style import GREY, TICKS_PX, TROUBLE, framed, plain
from ui.dashboard.pages.fleet.curves import Curves, Happened, HostCurve, levels, natural
from ui.dashboard.records import Floats, Ints, RankSpans
from ui.dashboard.wording import NS_PER_S, local_ms

STEPS_PX, PANEL_PX, GAP_PX = 120, 84, 30
WORDS_PX, TITLE_PX = 15, 20
WIDTH_PX = 1100
"""Of the time axis, about: whether two words stand apart."""
MAX_RANKS = 16
COLOURS = ("#3b8ede", "#e8871e", "#12966f", "#c95fa6", "#8a949e", "#b59f00", "#d1495b", "#7a67d8")
DASHES = {
    "solid": "■",
    "dash": "╍",
    "dot": "┉",
    "dashdot": "┅",
    "longdash": "━ ━",
    "longdashdot": "━ ·",
    "1px,8px": "·  ·",
}
"""Of lines -> how the heading of a panel shows one; as many as the most that a panel tells of one device."""


class Stroke(NamedTuple):
    """How a curve is drawn."""

    colour: str
    dash: str


def host_panels(
    ranks: Sequence[RankSpans],
    panels: Sequence[Curves],
    found: Sequence[Happened],
    *,
    keep: str,
) -> go.Figure:
    """``ranks``: the host's own, by number."""
    heights = [STEPS_PX, *[PANEL_PX] * len(panels)]
    shown = [_steps_of(one) for one in ranks[:MAX_RANKS]]
    drawn = [(shown, "s"), *((one.curves, one.panel.unit) for one in panels)]
    more = len(ranks) - len(shown)
    titles = [("Step time, s", shown, more), *((_title(one), one.curves, one.num_left_out) for one in panels)]
    drawn_as = strokes([curves for _, curves, _ in titles])
    notes = [_heading(row, *title, drawn_as[row - 1]) for row, title in enumerate(titles, start=1)]
    ends_ns = _ends([*shown, *(curve for one in panels for curve in one.curves)], found)
    placed = levels(found, *ends_ns, WIDTH_PX)
    lines = [shape for one in found for shape in _lines(one)]
    words = [_words(one, level) for one, level in zip(found, placed, strict=True) if level >= 0]
    top = TITLE_PX + WORDS_PX * (1 + max(placed, default=-1)) + 8
    return framed(
        [
            line
            for row, (curves, unit) in enumerate(drawn, start=1)
            for line in _curves(row, curves, unit, drawn_as[row - 1])
        ],
        height_px=_whole_px(heights) + top + TICKS_PX,
        keep=keep,
        hovermode="x",
        showlegend=False,
        margin={"r": 24, "t": top},
        shapes=lines,
        annotations=[*notes, *words],
        **_axes(heights),
    )


def strokes(panels: Sequence[Sequence[HostCurve]]) -> list[list[Stroke]]:
    """By panel and curve. A device has one colour in all panels, and what one tells of it differs by dashes; what is of
    the whole host takes its colour by its place."""
    devices = {curve.device for curves in panels for curve in curves if curve.device}
    place = {device: at for at, device in enumerate(sorted(devices, key=natural))}
    return [[_stroke(curve, at, curves, place) for at, curve in enumerate(curves)] for curves in panels]


def _stroke(curve: HostCurve, at: int, curves: Sequence[HostCurve], place: Mapping[str, int]) -> Stroke:
    kinds = [*dict.fromkeys(one.kind for one in curves)] if curve.device else [curve.kind]
    colour = COLOURS[place.get(curve.device, at) % len(COLOURS)]
    return Stroke(colour, [*DASHES][kinds.index(curve.kind) % len(DASHES)])


def _whole_px(heights: Sequence[int]) -> int:
    return sum(heights) + GAP_PX * (len(heights) - 1)


def _axes(heights: Sequence[int]) -> dict[str, dict[str, object]]:
    """Those of panels one above the other; what one shows of time, all do, and the lowest writes it."""
    axes: dict[str, dict[str, object]] = {}
    lowest, whole_px = _axis(len(heights)), _whole_px(heights)
    for row, height in enumerate(heights, start=1):
        axis = _axis(row)
        top_px = _whole_px(heights[:row]) - height
        shared = {} if axis == lowest else {"matches": f"x{lowest}", "showticklabels": False}
        time: dict[str, object] = {"anchor": f"y{axis}", "type": "date", "tickformat": "%H:%M:%S", "nticks": 10}
        domain = [1 - (top_px + height) / whole_px, 1 - top_px / whole_px]
        axes[f"xaxis{axis}"] = time | shared
        axes[f"yaxis{axis}"] = {"anchor": f"x{axis}", "domain": domain, "nticks": 4, "showgrid": True} | {
            "rangemode": "tozero"
        }
    return axes


def _axis(row: int) -> str:
    """What plotly writes behind the name of an axis."""
    return "" if row == 1 else str(row)


def _steps_of(one: RankSpans) -> HostCurve:
    """Each step's length, from its begin to the next one's."""
    ended_ns = one.start_ns[-1:] + one.duration_ns[-1:]
    seconds = one.duration_ns / NS_PER_S
    return HostCurve(
        device=f"rank {one.rank}",
        kind="",
        at_ns=np.concatenate([one.start_ns, ended_ns]),
        value=np.concatenate([seconds, seconds[-1:]]),
        holds=True,
    )


def _curves(row: int, curves: Sequence[HostCurve], unit: str, drawn_as: Sequence[Stroke]) -> Iterator[go.Scatter]:
    for curve, stroke in zip(curves, drawn_as, strict=True):
        line = {"color": stroke.colour, "dash": stroke.dash, "width": 1.5, "shape": "hv" if curve.holds else "linear"}
        yield go.Scatter(
            xaxis=f"x{_axis(row)}",
            yaxis=f"y{_axis(row)}",
            x=_local_ms(curve.at_ns),
            y=curve.value.astype(np.float32),
            mode="lines" if len(curve.at_ns) >= MARKERS_BELOW else "lines+markers",
            line=line,
            name=plain(curve.name),
            hovertemplate=f"%{{x|%H:%M:%S}} <b>{plain(curve.name)}: %{{y:.4~g}} {unit}</b><extra></extra>",
        )


def _title(one: Curves) -> str:
    return one.panel.title + (f", {one.panel.unit}" if one.panel.unit else "")


def _heading(
    row: int, title: str, curves: Sequence[HostCurve], num_left_out: int, drawn_as: Sequence[Stroke]
) -> dict[str, object]:
    """The title of a panel with the colours of its curves, above its left corner."""
    names = [
        f"<span style='color:{stroke.colour}'>{DASHES[stroke.dash]}</span> {plain(curve.name)}"
        for curve, stroke in zip(curves, drawn_as, strict=True)
    ]
    more = f" and {num_left_out} more" if num_left_out > 0 else ""
    place = {"xref": "paper", "x": 0, "yref": f"y{_axis(row)} domain", "y": 1, "xanchor": "left", "yanchor": "bottom"}
    text = f"<b>{title}</b>   {'  '.join(names)}{more}"
    return place | {"text": text, "showarrow": False, "font": {"size": 11}}


def _lines(one: Happened) -> Iterator[dict[str, object]]:
    colour = TROUBLE if one.is_trouble else GREY
    across = {"xref": "x", "yref": "paper", "y0": 0, "y1": 1}
    begun, until = local_ms(one.at_ns), local_ms(one.until_ns)
    if until > begun:
        yield {"type": "rect", "x0": begun, "x1": until, "fillcolor": colour, "opacity": 0.16, "line": {"width": 0}} | (
            across | {"layer": "below"}
        )
    yield {"type": "line", "x0": begun, "x1": begun, "line": {"color": colour, "width": 1.2, "dash": "dot"}} | across


def _words(one: Happened, level: int) -> dict[str, object]:
    place = {"xref": "x", "x": local_ms(one.at_ns), "yref": "paper", "y": 1, "yshift": TITLE_PX + WORDS_PX * level}
    style = {"xanchor": "left", "yanchor": "bottom", "showarrow": False, "font": {"size": 11, "color": GREY}}
    return place | style | {"text": plain(one.words)}


def _ends(curves: Sequence[HostCurve], found: Sequence[Happened]) -> tuple[int, int]:
    """The first and the last time of all."""
    times = [time for curve in curves if len(curve.at_ns) for time in (int(curve.at_ns[0]), int(curve.at_ns[-1]))]
    times += [time for one in found for time in (one.at_ns, one.until_ns)]
    return min(times, default=0), max(times, default=0)


def _local_ms(at_ns: Ints) -> Floats:
    return (at_ns - at_ns[:1]) / 1e6 + local_ms(int(at_ns[0])) if len(at_ns) else np.zeros(0)
