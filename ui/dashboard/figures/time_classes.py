"""Wall time of a run by class: a bar for each piece of wall time, stacked to 100%.

    100% |#####|#####|::::|xxxx|#####|      # useful, : detecting, x waiting for nodes
         +-----+-----+----+----+-----+
         attempt 0             attempt 1

Colours are the same in light and dark. Colour-blind people can distinguish them.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import plotly.graph_objects as go

from diagnose.goodput.records import CLASSES, Ledger, TimeClass
from ui.dashboard.chart_view import Axis
from ui.dashboard.events import RunEvent
from ui.dashboard.figures.markers import STRIP_PX, marker_trace, strip_axis
from ui.dashboard.figures.style import CLEAR, GREY, TROUBLE, framed, titled
from ui.dashboard.figures.x_axis import XAxis
from ui.dashboard.records import Floats
from ui.dashboard.wording import time_zone

HEIGHT_PX, TOP_PX, BELOW_PX, LEFT_PX = 290, 52, 56, 62
MAX_BARS = 240
MAX_LINES = 24
"""Largest number of attempts, and of incidents, that are drawn as lines: the newest ones."""
CLASS_COLOURS: dict[TimeClass, str] = {
    TimeClass.USEFUL: "#62aef0",
    TimeClass.REPEATED: "#f2c037",
    TimeClass.CHECKPOINTING: "#6244c4",
    TimeClass.OUTSIDE_STEPS: "#9aa5b1",
    TimeClass.DETECTING: "#c92a2a",
    TimeClass.CHECKING: "#0f7767",
    TimeClass.RESTARTING: "#ee8c58",
    TimeClass.WAITING: "#a0559a",
    TimeClass.IDLE: "#d5dbe1",
}


def wall_time(ledger: Ledger, events: Sequence[RunEvent] = (), *, keep: str) -> go.Figure:
    """The bars, with the events of the run in a strip above them. The run of ``ledger`` must have wall time.
    ``keep``: as in ``framed``."""
    begin_ns, end_ns = ledger.timeline.begin_ns, ledger.timeline.end_ns
    x_axis = XAxis(axis=Axis.TIME, first=begin_ns, last=end_ns, zone=time_zone(end_ns))
    wall_ms = np.linspace(*x_axis.ends, MAX_BARS + 1)
    edges_ns = np.linspace(begin_ns, end_ns, len(wall_ms)).astype(np.int64)
    times_ns = ledger.timeline.columns_ns(len(CLASSES), edges_ns)
    shares = times_ns / np.maximum(np.diff(edges_ns), 1) * 100
    bars = [
        _bars(time_class, share, wall_ms)
        for time_class, share in zip(CLASSES, shares, strict=True)
        if ledger.classes_ns[time_class]
    ]

    def at_ms(at_ns: int) -> float:
        return float(wall_ms[0]) + (at_ns - ledger.timeline.begin_ns) / 1e6

    strip = STRIP_PX / (HEIGHT_PX - TOP_PX - BELOW_PX)
    return framed(
        [*bars, marker_trace(x_axis.markers(events))],
        height_px=HEIGHT_PX,
        keep=keep,
        margin={"t": TOP_PX, "b": BELOW_PX, "l": LEFT_PX},
        barmode="stack",
        bargap=0,
        legend={"orientation": "h", "x": 0, "y": 1.28, "traceorder": "normal", "bgcolor": CLEAR},
        xaxis={"type": "date", "range": _with_room(*x_axis.ends), "title": x_axis.title, "anchor": "y"},
        yaxis={"range": [0, 100], "fixedrange": True, "nticks": 5, "domain": [0, 1 - strip]}
        | {"title": titled("share of wall time, %")},
        yaxis2=strip_axis(strip),
        shapes=[_line(at_ms(at_ns), colour) for at_ns, colour in _lines(ledger)],
        annotations=[
            _name(at_ms(at_ns), f"attempt {attempt}")
            for attempt, at_ns in list(zip(ledger.attempts, ledger.begins_ns, strict=True))[-MAX_LINES:]
        ],
    )


def _with_room(first: float, last: float) -> list[float]:
    """A range with room for a marker at its ends."""
    return [first - 0.01 * (last - first), last + 0.01 * (last - first)]


def _bars(time_class: TimeClass, share: Floats, wall_ms: Floats) -> go.Bar:
    return go.Bar(
        name=str(time_class),
        x=(wall_ms[:-1] + wall_ms[1:]) / 2,
        y=share,
        width=np.diff(wall_ms),
        marker={"color": CLASS_COLOURS[time_class], "line": {"width": 0}},
        hovertemplate=f"<b>{time_class}</b><br>%{{x|%H:%M:%S}}: %{{y:.0f}}%<extra></extra>",
    )


def _lines(ledger: Ledger) -> Iterator[tuple[int, str]]:
    yield from ((at_ns, GREY) for at_ns in ledger.begins_ns[-MAX_LINES:])
    yield from ((incident.began_ns, TROUBLE) for incident in ledger.incidents[-MAX_LINES:])


def _line(at_ms: float, colour: str) -> dict[str, object]:
    line = {"color": colour, "width": 1.5, "dash": "dot"}
    return {"type": "line", "x0": at_ms, "x1": at_ms, "yref": "paper", "y0": 0, "y1": 1, "line": line}


def _name(at_ms: float, text: str) -> dict[str, object]:
    place = {"x": at_ms, "yref": "paper", "y": 1, "xanchor": "left", "yanchor": "bottom"}
    return place | {"text": text, "showarrow": False, "font": {"size": 10, "color": GREY}}
