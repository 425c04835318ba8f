"""Events of a run in a chart: symbols in a strip above the curve. Events that are close together are one symbol with
their number.

    strip    v       3     s        v finding, s restart, 3: three events
    curve  __:_______:__/''|__
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from textwrap import wrap

import plotly.graph_objects as go

from diagnose.findings import Severity
from ui.dashboard.events import EventKind, RunEvent
from ui.dashboard.figures.style import ON_DARK, plain, short
from ui.dashboard.wording import stamp

MAX_MARKERS = 24
"""Largest number of markers in one chart. A marker takes about 18 pixels of a chart in a narrow window."""
STRIP_PX = 20
"""Height of the strip."""
MAX_TOLD, MAX_LINES, LINE_LETTERS = 5, 2, 64
"""Events in the text at the pointer, the lines of each, and the characters of a line."""
MAX_COUNT = 99
SEVERITY_MARKS = {Severity.CRITICAL: "#f03e3e", Severity.WARNING: "#e8590c", Severity.INFO: "#228be6"}
"""Severity -> colour of a marker: red, orange and blue, as in lists of findings."""
OTHER = "#6c757d"
"""Colour of events that are not findings. White numbers are readable on all of these colours."""
SYMBOLS = {
    EventKind.FINDING: "triangle-down",
    EventKind.RESTART: "square",
    EventKind.FLAP: "diamond",
    EventKind.MARK: "circle",
}
SIGNS = {EventKind.FINDING: "▼", EventKind.RESTART: "■", EventKind.FLAP: "◆", EventKind.MARK: "●"}
"""The symbols as characters, for text."""
_URGENCY = [*SEVERITY_MARKS, None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """Events at one place of the x axis, the first one first."""

    at: float
    events: tuple[RunEvent, ...]

    @property
    def is_several(self) -> bool:
        return len(self.events) > 1

    @property
    def leading(self) -> RunEvent:
        """The most severe event. It decides the colour, and a click opens it."""
        return min(self.events, key=lambda event: _URGENCY.index(event.severity))


def combine(places: Iterable[tuple[float, RunEvent]], first: float, last: float) -> list[Marker]:
    """At most MAX_MARKERS markers between ``first`` and ``last``. Events outside are left out."""
    inside = sorted((place for place in places if first <= place[0] <= last), key=lambda place: place[0])
    apart = (last - first) / (MAX_MARKERS - 1) or 1.0
    groups: list[tuple[float, list[RunEvent]]] = []
    for at, event in inside:
        if groups and at - groups[-1][0] < apart:
            groups[-1][1].append(event)
        else:
            groups.append((at, [event]))
    return [Marker(at=at, events=tuple(events)) for at, events in groups]


def strip_axis(share: float) -> dict[str, object]:
    """The y axis of the strip, which takes ``share`` of the height of the chart."""
    return {"domain": [1 - share, 1], "range": [0, 1], "fixedrange": True, "visible": False, "anchor": "x"}


def marker_trace(markers: Sequence[Marker]) -> go.Scatter:
    """The symbols, in the strip: :func:`strip_axis` must be ``yaxis2``."""
    return go.Scatter(
        x=[marker.at for marker in markers],
        y=[0.5] * len(markers),
        yaxis="y2",
        mode="markers+text",
        marker={
            "symbol": ["circle" if marker.is_several else SYMBOLS[marker.leading.kind] for marker in markers],
            "size": [16 if marker.is_several else 11 for marker in markers],
            "color": [colour_of(marker) for marker in markers],
            "line": {"width": 0},
            "opacity": 1,  # plotly draws markers of different sizes faintly
        },
        text=[_number(marker) if marker.is_several else "" for marker in markers],
        textfont={"size": 10, "color": ON_DARK},
        textposition="middle center",
        hovertext=[hover_text(marker) for marker in markers],
        hoverinfo="text",
        customdata=[marker.leading.key for marker in markers],
        name="events",
        cliponaxis=False,
        showlegend=False,
    )


def marker_lines(markers: Sequence[Marker]) -> list[dict[str, object]]:
    """A faint line through the curve below each marker."""
    return [
        {"type": "line", "x0": marker.at, "x1": marker.at, "yref": "paper", "y0": 0, "y1": 1, "layer": "below"}
        | {"line": {"color": colour_of(marker), "width": 1, "dash": "dot"}, "opacity": 0.6}
        for marker in markers
    ]


def colour_of(marker: Marker) -> str:
    """The colour of the highest severity; grey if no event is a finding."""
    severity = marker.leading.severity
    return OTHER if severity is None else SEVERITY_MARKS[severity]


def hover_text(marker: Marker) -> str:
    """The text at the pointer: the most severe event first, then the others in the order of time."""
    leading = marker.leading
    ordered = [leading, *(event for event in marker.events if event is not leading)]
    lines = [_line(event) for event in ordered[:MAX_TOLD]]
    left_out = len(ordered) - len(lines)
    more = [f"and {left_out:,} more"] if left_out else []
    return "<br>".join([*lines, *more])


def _line(event: RunEvent) -> str:
    severity = f" ({event.severity})" if event.severity else ""
    name = f"<b>{plain(short(event.name))}{severity}</b>"
    lines = wrap(event.text, LINE_LETTERS, max_lines=MAX_LINES, placeholder=" …")
    head = f"{SIGNS[event.kind]} {name} step {event.step:,}, {stamp(event.at_ns)}"
    return "<br>".join([head, *map(plain, lines)])


def _number(marker: Marker) -> str:
    return str(len(marker.events)) if len(marker.events) <= MAX_COUNT else f"{MAX_COUNT}+"
