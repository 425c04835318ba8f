"""Colours, scales and the frame that every figure shares. Text and lines take the page's colours by style sheet,
so that one figure serves light and dark (``ui/dashboard/assets/figures.css``)."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.basedatatypes import BaseTraceType

from telemetry.stages import Stage

GRAPH_CONFIG: dict[str, Any] = {
    "displaylogo": False,
    "responsive": True,
    # plotly's "Share chart" uploads the data of a figure: no button, and nowhere to send it.
    "showSendToCloud": False,
    "plotlyServerURL": "",
    "showTips": False,
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d"],
}
CLEAR = "rgba(0,0,0,0)"
FAINT = "rgba(134,142,150,0.14)"
GREY = "#868e96"
BLUE = "#3b8ede"
SUSPECT = "#e03131"
"""Outline on the ratio scale. The style sheet replaces it by the text colour of the page."""
UNDER = "#fefefe"
"""A band below an outline that crosses cells. The style sheet replaces it by the background colour of the page."""
SUSPECT_ON_TIME = "#ff3b30"
"""Outline on the scale of milliseconds, which is navy to yellow."""
SELECTED = "#00b8a3"
TROUBLE = "#d9480f"
"""Colour of faults on a curve."""
FONT = "-apple-system, BlinkMacSystemFont, Segoe UI, Roboto, Helvetica, Arial, sans-serif"

RATIO_RANGE = (0.5, 1.5)
"""Range of the scale of ratios to peers. Values outside have the colour of the end."""
RATIO_SCALE: list[list[float | str]] = [
    [0.0, "#2b6cb0"],
    [0.3, "rgba(99,164,216,0.75)"],
    [0.44, FAINT],
    [0.56, FAINT],
    [0.64, "rgba(245,189,92,0.85)"],
    [0.8, "#ee8522"],
    [1.0, "#c92a2a"],
]
"""Blue is faster than the peers, grey is equal, amber to red is slower. Colour-blind people can distinguish them."""
FAINT_HALF_WIDTH = 0.08
"""Half the width of the faint middle of the ratio scale, as a share of the scale."""
TIME_SCALE = "Cividis"
ON_LIGHT, ON_DARK = "#111111", "#fdfdfd"
"""Colours of text on cells. The style sheet does not replace them."""
DARK_FROM = 0.88
"""From here on, the ends of scales from faint to red or blue are too dark for black text."""


def ink_from_faint(strength: float, faint_to: float) -> str:
    """The colour of text on a scale from faint (0) to dark red or blue (1): the text colour of the page up to
    ``faint_to``, then black, then white."""
    if strength <= faint_to:
        return GREY
    return ON_LIGHT if strength < DARK_FROM else ON_DARK


STAGE_COLOURS: dict[Stage, str] = {
    Stage.STEP: FAINT,
    Stage.DATA_LOAD: "#8a949e",
    Stage.FORWARD_COMPUTE: "#62aef0",
    Stage.BACKWARD_COMPUTE: "#2f73c4",
    Stage.FORWARD_SEND: "#f2c037",
    Stage.FORWARD_RECV: "#857200",
    Stage.BACKWARD_SEND: "#d99000",
    Stage.BACKWARD_RECV: "#6e3d00",
    Stage.PARAMS_ALL_GATHER: "#f8bd9a",
    Stage.GRADS_REDUCE_SCATTER: "#cf4f1f",
    Stage.GRADS_ALL_REDUCE: "#932f0d",
    Stage.EMBEDDING_GRADS_ALL_REDUCE: "#6f6158",
    Stage.LAYERNORM_GRADS_ALL_REDUCE: "#6a2b57",
    Stage.TP_ALL_GATHER: "#eabfda",
    Stage.TP_REDUCE_SCATTER: "#a64f87",
    Stage.TP_ALL_REDUCE: "#cd86b4",
    Stage.TP_ALL_TO_ALL: "#391333",
    Stage.CP_SEND_RECV: "#dceeeb",
    Stage.CP_ALL_GATHER: "#90c9bf",
    Stage.CP_REDUCE_SCATTER: "#4fa595",
    Stage.CP_ALL_REDUCE: "#3b7b70",
    Stage.CP_ALL_TO_ALL: "#27524a",
    Stage.EP_ALL_TO_ALL: "#bcb175",
    Stage.EP_ALL_GATHER: "#e6d789",
    Stage.EP_REDUCE_SCATTER: "#6e6535",
    Stage.OPTIMIZER: "#0f7767",
    Stage.OPTIMIZER_CLIP: "#9fdacb",
    Stage.GC: "#5c636a",
    Stage.CHECKPOINT_SNAPSHOT: "#b6a5f3",
    Stage.CHECKPOINT_WRITE: "#6244c4",
    Stage.EVALUATION: "#c4c95e",
    Stage.ROLLOUT: "#123a6b",
    Stage.SEPARATE_GRADS_ALL_REDUCE: "#ee8c58",
    Stage.BROADCAST: "#421302",
    Stage.FORWARD_BACKWARD: "#2c3e57",
    Stage.COMMUNICATION_WAIT: "#d9b3c4",
}
"""One palette for light and dark. Colour-blind people can distinguish stages of one lane of the timeline
(``tests/ui/dashboard/figures/test_colours.py``). A receive is darker than its send."""
STAGE_SHORT: dict[Stage, str] = {
    Stage.FORWARD_COMPUTE: "F",
    Stage.BACKWARD_COMPUTE: "B",
    Stage.FORWARD_SEND: "s",
    Stage.FORWARD_RECV: "r",
    Stage.BACKWARD_SEND: "s",
    Stage.BACKWARD_RECV: "r",
}
"""Text on a bar that is too short for the name of the stage. The microbatch follows."""


EDGE_PX, NUMBERS_PX, TICKS_PX, COLOUR_BAR_PX = 8, 48, 34, 128
"""Margins: left for numbers, below for ticks, right for a colour bar. If a margin is too small, plotly enlarges it and
draws the figure again."""
LETTER_PX = 7.5
MOST_LABELS_PX = 320
_TAG = re.compile("<[^>]*>")

FRAME: Mapping[str, Any] = {
    "template": "none",
    "paper_bgcolor": CLEAR,
    "plot_bgcolor": CLEAR,
    "font": {"family": FONT, "size": 12, "color": GREY},
    "hoverlabel": {"font": {"family": FONT, "size": 12}, "align": "left"},
    "modebar": {"orientation": "h", "bgcolor": CLEAR, "color": GREY, "activecolor": BLUE},
}
MARGIN: Mapping[str, int] = {"l": NUMBERS_PX, "r": EDGE_PX, "t": EDGE_PX, "b": TICKS_PX}
AXIS: Mapping[str, Any] = {"automargin": True, "ticklabeloverflow": "allow", "zeroline": False}
"""With another value than ``allow``, plotly measures each label again."""
X_AXIS: Mapping[str, Any] = {
    **AXIS,
    "showgrid": False,
    "ticks": "outside",
    "ticklen": 4,
}
Y_AXIS: Mapping[str, Any] = {**AXIS, "gridcolor": FAINT}

MAX_LABEL = 28
"""Largest number of characters of a name in a figure."""


def framed(
    traces: Sequence[BaseTraceType], *, height_px: int, keep: str, margin: Mapping[str, int] = MARGIN, **layout: Any
) -> go.Figure:
    """The traces in the shared frame. Zoom and hidden traces persist while ``keep`` is the same. ``margin`` overrides
    :data:`MARGIN`, and ``layout`` adds to the frame.

    The figure is made in one call: plotly takes ten times as long to change a figure.
    """
    axes = {"xaxis": {}, "yaxis": {}} | {name: axis for name, axis in layout.items() if name[1:].startswith("axis")}
    whole = {name: (X_AXIS if name.startswith("x") else Y_AXIS) | axis for name, axis in axes.items()}
    room = {"height": height_px, "margin": {**MARGIN, **margin}}
    return go.Figure([*traces], {**FRAME, **room, "uirevision": keep, **layout, **whole})


def titled(text: str) -> dict[str, Any]:
    """The title of an axis: a quantity with its unit, such as ``step time, s``."""
    return {"text": plain(text), "standoff": 6, "font": {"size": 11}}


def room_for(labels: Iterable[str]) -> int:
    """The left margin in pixels for these row labels. Plotly shortens the picture for labels beyond MOST_LABELS_PX."""
    longest = max((len(_TAG.sub("", label)) for label in labels), default=0)
    return min(EDGE_PX + round(LETTER_PX * longest), MOST_LABELS_PX)


def outline(x0: float, x1: float, y0: float, y1: float, colour: str = SUSPECT, width_px: float = 2.5) -> dict[str, Any]:
    """A rectangle in axis units, drawn above the data."""
    line = {"color": colour, "width": width_px}
    return {"type": "rect", "x0": x0, "x1": x1, "y0": y0, "y1": y1, "line": line, "fillcolor": CLEAR, "layer": "above"}


def short(name: str, limit: int = MAX_LABEL) -> str:
    """``name`` in at most ``limit`` characters. The middle is left out, because host names differ at the end."""
    if len(name) <= limit:
        return name
    end = limit // 2
    return f"{name[: limit - end - 1]}…{name[-end:]}"


def plain(text: str) -> str:
    """``text`` as plotly shows it literally. Plotly interprets some HTML in labels."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
