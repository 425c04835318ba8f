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
from ui.dashboard.figures.style import GREY, TROUBLE, framed, plain, titled
from ui.dashboard.pages.fleet.curves import ChartEvent, Curves, HostCurve, levels, natural
from ui.dashboard.records import Floats, Ints, RankSpans
from ui.dashboard.wording import NS_PER_S, local_ms, time_zone

STEPS_PX, PANEL_PX, GAP_PX = 120, 84, 30
LABEL_PX, TITLE_PX, BELOW_PX = 15, 20, 54
TICK_PX, STANDOFF_PX = 20, 5
"""The least height for each tick, and the distance of its label from the axis: the lowest one is beside a tick of the
time axis."""
WIDTH_PX = 1100
"""Approximate width of the time axis, to place labels."""
MAX_RANKS = 16
MAX_PIECES = 600
"""With more pieces than this, each line of an event is drawn in one piece and crosses the headings, because many pieces
are drawn slowly."""
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
"""Dash style of lines -> its symbol in the heading of a panel."""


class Stroke(NamedTuple):
    """How a curve is drawn."""

    colour: str
    dash: str


def host_panels(
    ranks: Sequence[RankSpans],
    panels: Sequence[Curves],
    found: Sequence[ChartEvent],
    *,
    keep: str,
) -> go.Figure:
    """The figure of a host. ``ranks``: the steps of its ranks, ascending. ``found``: the events, ordered by time."""
    heights = [STEPS_PX, *[PANEL_PX] * len(panels)]
    shown = [_steps_of(rank) for rank in ranks[:MAX_RANKS]]
    drawn = [(shown, "s"), *((curves.curves, curves.panel.unit) for curves in panels)]
    more = len(ranks) - len(shown)
    titles = [
        ("Step time, s", shown, more),
        *((_title(curves), curves.curves, curves.num_left_out) for curves in panels),
    ]
    drawn_as = strokes([curves for _, curves, _ in titles])
    notes = [_heading(row, *title, drawn_as[row - 1]) for row, title in enumerate(titles, start=1)]
    ends_ns = _ends([*shown, *(curve for curves in panels for curve in curves.curves)], found)
    placed = levels(found, *ends_ns, WIDTH_PX)
    is_apart = len(found) * len(heights) <= MAX_PIECES
    pieces = [f"y{_axis(row)} domain" for row in range(1, len(heights) + 1)] if is_apart else ["paper"]
    lines = [shape for event in found for shape in _lines(event, pieces)]
    labels = [_label(event, level) for event, level in zip(found, placed, strict=True) if level >= 0]
    top = TITLE_PX + LABEL_PX * (1 + max(placed, default=-1)) + 8
    return framed(
        [
            line
            for row, (curves, unit) in enumerate(drawn, start=1)
            for line in _curves(row, curves, unit, drawn_as[row - 1])
        ],
        height_px=_whole_px(heights) + top + BELOW_PX,
        keep=keep,
        hovermode="x",
        showlegend=False,
        margin={"r": 24, "t": top, "b": BELOW_PX},
        shapes=lines,
        annotations=[*notes, *labels],
        **_axes(heights, titled(f"wall clock of the host, {time_zone(ends_ns[1])}")),
    )


def strokes(panels: Sequence[Sequence[HostCurve]]) -> list[list[Stroke]]:
    """The stroke of each curve of each panel. A device has one colour in all panels, and dashes distinguish its curves.
    A curve of the whole host has the colour of its position."""
    devices = {curve.device for curves in panels for curve in curves if curve.device}
    place = {device: at for at, device in enumerate(sorted(devices, key=natural))}
    return [[_stroke(curve, at, curves, place) for at, curve in enumerate(curves)] for curves in panels]


def _stroke(curve: HostCurve, at: int, curves: Sequence[HostCurve], place: Mapping[str, int]) -> Stroke:
    kinds = [*dict.fromkeys(other.kind for other in curves)] if curve.device else [curve.kind]
    colour = COLOURS[place.get(curve.device, at) % len(COLOURS)]
    return Stroke(colour, [*DASHES][kinds.index(curve.kind) % len(DASHES)])


def _whole_px(heights: Sequence[int]) -> int:
    return sum(heights) + GAP_PX * (len(heights) - 1)


def _axes(heights: Sequence[int], title: Mapping[str, object]) -> dict[str, dict[str, object]]:
    """The axes of panels one above the other. They share the time axis. Only the lowest panel has its labels."""
    axes: dict[str, dict[str, object]] = {}
    lowest, whole_px = _axis(len(heights)), _whole_px(heights)
    for row, height in enumerate(heights, start=1):
        axis = _axis(row)
        top_px = _whole_px(heights[:row]) - height
        shared = {"title": title} if axis == lowest else {"matches": f"x{lowest}", "showticklabels": False}
        time: dict[str, object] = {"anchor": f"y{axis}", "type": "date", "tickformat": "%H:%M:%S", "nticks": 10}
        domain = [1 - (top_px + height) / whole_px, 1 - top_px / whole_px]
        axes[f"xaxis{axis}"] = time | shared
        values = {"nticks": height // TICK_PX, "ticklabelstandoff": STANDOFF_PX, "rangemode": "tozero"}
        axes[f"yaxis{axis}"] = {"anchor": f"x{axis}", "domain": domain, "showgrid": True} | values
    return axes


def _axis(row: int) -> str:
    """The suffix of plotly's axis names."""
    return "" if row == 1 else str(row)


def _steps_of(steps: RankSpans) -> HostCurve:
    """The duration of each step, from its begin to the next one."""
    ended_ns = steps.start_ns[-1:] + steps.duration_ns[-1:]
    seconds = steps.duration_ns / NS_PER_S
    return HostCurve(
        device=f"rank {steps.rank}",
        kind="",
        at_ns=np.concatenate([steps.start_ns, ended_ns]),
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


def _title(curves: Curves) -> str:
    return curves.panel.title + (f", {curves.panel.unit}" if curves.panel.unit else "")


def _heading(
    row: int, title: str, curves: Sequence[HostCurve], num_left_out: int, drawn_as: Sequence[Stroke]
) -> dict[str, object]:
    """The title of a panel with the colours of its curves."""
    names = curve_names(curves, drawn_as)
    more = f" and {num_left_out} more" if num_left_out > 0 else ""
    place = {"xref": "paper", "x": 0, "yref": f"y{_axis(row)} domain", "y": 1, "xanchor": "left", "yanchor": "bottom"}
    text = f"<b>{title}</b>   {'  '.join(names)}{more}"
    return place | {"text": text, "showarrow": False, "font": {"size": 11}}


def curve_names(curves: Sequence[HostCurve], drawn_as: Sequence[Stroke]) -> list[str]:
    """The curves with their colours. If several devices have curves of a kind, each device and each kind is named once:
    ``■ gpu0  ■ gpu1  ■ power cap  ╍ heat``."""
    pairs = [*zip(curves, drawn_as, strict=True)]
    devices = {curve.device: stroke.colour for curve, stroke in pairs}
    kinds = {curve.kind: DASHES[stroke.dash] for curve, stroke in pairs}
    if len(devices) < 2 or kinds.keys() == {""}:
        return [_sample(stroke.colour, DASHES[stroke.dash], curve.name) for curve, stroke in pairs]
    named = [_sample(colour, DASHES["solid"], device) for device, colour in devices.items()]
    return [*named, *(f"{dashes} {plain(kind)}" for kind, dashes in kinds.items() if kind)]


def _sample(colour: str, dashes: str, name: str) -> str:
    return f"<span style='color:{colour}'>{dashes}</span> {plain(name)}"


def _lines(event: ChartEvent, pieces: Sequence[str]) -> Iterator[dict[str, object]]:
    """The interval of an event, and a line at its begin. ``pieces``: plotly's names of the panels, so that no line
    crosses the heading of a panel."""
    colour = TROUBLE if event.is_trouble else GREY
    across = {"xref": "x", "yref": "paper", "y0": 0, "y1": 1}
    begun, until = local_ms(event.at_ns), local_ms(event.until_ns)
    if until > begun:
        yield {"type": "rect", "x0": begun, "x1": until, "fillcolor": colour, "opacity": 0.16, "line": {"width": 0}} | (
            across | {"layer": "below"}
        )
    line = {"type": "line", "x0": begun, "x1": begun, "line": {"color": colour, "width": 1.2, "dash": "dot"}}
    yield from (line | across | {"yref": piece} for piece in pieces)


def _label(event: ChartEvent, level: int) -> dict[str, object]:
    place = {"xref": "x", "x": local_ms(event.at_ns), "yref": "paper", "y": 1, "yshift": TITLE_PX + LABEL_PX * level}
    style = {"xanchor": "left", "yanchor": "bottom", "showarrow": False, "font": {"size": 11, "color": GREY}}
    return place | style | {"text": plain(event.label)}


def _ends(curves: Sequence[HostCurve], found: Sequence[ChartEvent]) -> tuple[int, int]:
    times = [time for curve in curves if len(curve.at_ns) for time in (int(curve.at_ns[0]), int(curve.at_ns[-1]))]
    times += [time for event in found for time in (event.at_ns, event.until_ns)]
    return min(times, default=0), max(times, default=0)


def _local_ms(at_ns: Ints) -> Floats:
    return (at_ns - at_ns[:1]) / 1e6 + local_ms(int(at_ns[0])) if len(at_ns) else np.zeros(0)
