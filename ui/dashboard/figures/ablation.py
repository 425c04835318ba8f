"""The step time of each row of an ablation, with its exposed communication.

row 0   |==========|##|::|     = not exposed communication, # dp, : pp
row 1   |========|#|::|
"""

from collections.abc import Iterator

import plotly.graph_objects as go

from diagnose.ablation import Ablation
from ui.dashboard.figures.style import BLUE, CLEAR, framed

ROW_PX, EDGES_PX = 34, 90
AXIS_COLOURS = {"dp": "#6244c4", "pp": "#0f7767", "tp": "#ee8c58", "cp": "#a0559a", "ep": "#f2c037"}


def row_times(ablation: Ablation, *, keep: str) -> go.Figure:
    """Bars of seconds, the first row on top. ``keep``: as in ``framed``."""
    return framed(
        list(_bars(ablation)),
        height_px=EDGES_PX + ROW_PX * len(ablation.rows),
        keep=keep,
        barmode="stack",
        margin={"l": 190, "t": 44, "r": 24},
        legend={"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom", "traceorder": "normal", "bgcolor": CLEAR},
        xaxis={"ticksuffix": " s", "rangemode": "tozero"},
        yaxis={"autorange": "reversed", "fixedrange": True, "type": "category"},
    )


def _bars(ablation: Ablation) -> Iterator[go.Bar]:
    names = [f"{row.number} {row.technique}" for row in ablation.rows]
    exposed = [row.exposed_s for row in ablation.rows]
    axes = [axis for axis in AXIS_COLOURS if any(axis in of_row for of_row in exposed)]
    parts = [[of_row[axis].median if axis in of_row else 0.0 for of_row in exposed] for axis in axes]
    rest = [max(0.0, row.step_s.median - sum(seconds)) for row, *seconds in zip(ablation.rows, *parts, strict=True)]
    yield _bar("the rest of the step", names, rest, BLUE)
    for axis, seconds in zip(axes, parts, strict=True):
        yield _bar(f"exposed {axis}", names, seconds, AXIS_COLOURS[axis])


def _bar(name: str, rows: list[str], seconds: list[float], colour: str) -> go.Bar:
    return go.Bar(
        name=name,
        y=rows,
        x=seconds,
        orientation="h",
        marker={"color": colour, "line": {"width": 0}},
        hovertemplate=f"%{{y}}<br><b>{name} %{{x:.3f}} s</b><extra></extra>",
    )
