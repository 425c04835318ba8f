"""Charts of a what-if analysis: bars of stages and places, a heat map of workers, and the step time after fixes.

A value is the slowdown of the ideal step if only this part is as measured; bars start at no slowdown. Each bar and
cell holds the target of a click: a rank or the code of a stage, and a step.
"""

import numpy as np
import plotly.graph_objects as go

from diagnose.whatif.analysis import WhatIf
from diagnose.whatif.conclude import WorstWorkers
from telemetry.stages import STAGE_BY_LABEL, Stage
from telemetry.topology import Place, Topology
from ui.dashboard.figures.heat_map import Colours, colour_bar
from ui.dashboard.figures.metrics import hottest_ranks, pool
from ui.dashboard.figures.style import BLUE, COLOUR_BAR_PX, FAINT, GREY, SUSPECT, framed, outline, room_for, titled
from ui.dashboard.records import Floats, Ints
from ui.dashboard.wording import worker_name

MAX_BARS = 12
MAX_COLUMNS = 400
MIN_SPACED = 96
"""With at most this many cells in a row, there are gaps between cells."""
BAR_PX, PLACES_PX, ROW_PX, MIN_PX, MAX_PX = 24, 216, 26, 170, 620
BELOW_PX, LEFT_PX = 42, 62
"""Margins with the title of an axis."""
LONGER = "increase of the step time, %"
LEAST_TOP = 1.1
"""The colour scale ends at least at this multiple of its begin, so that a healthy run looks healthy."""
SCALE: list[list[float | str]] = [
    [0.0, FAINT],
    [0.25, "rgba(245,189,92,0.85)"],
    [0.6, "#ee8522"],
    [1.0, "#c92a2a"],
]
TRANSFERS = {"forward-pp-comm": Stage.FORWARD_RECV, "backward-pp-comm": Stage.BACKWARD_RECV}
"""Both sides of a transfer are one part of the analysis. The part links to the heat map of the receiver."""


def stage_of(label: str) -> Stage:
    """The stage whose heat map shows a part of ``WhatIf.by_stage``."""
    return TRANSFERS.get(label) or STAGE_BY_LABEL[label]


def by_stage(figures: WhatIf, step: int, *, keep: str) -> go.Figure:
    """Bars of stages, the slowest on top."""
    worst = sorted(figures.by_stage.items(), key=lambda item: item[1])[-MAX_BARS:]
    bars = go.Bar(
        orientation="h",
        x=[_percent(ratio) for _, ratio in worst],
        y=[label for label, _ in worst],
        customdata=[[int(stage_of(label)), step] for label, _ in worst],
        marker={"color": BLUE},
        hovertemplate="<b>%{y}</b><br>if only this is slow: step %{x:.1f}% longer<extra></extra>",
    )
    grid = {"showgrid": True, "gridcolor": FAINT}
    return framed(
        [bars],
        height_px=BAR_PX * len(worst) + 68,
        keep=keep,
        margin={"l": room_for(label for label, _ in worst), "b": BELOW_PX},
        bargap=0.3,
        dragmode=False,
        xaxis={"title": titled(LONGER), "nticks": 6, "range": _range(figures), "fixedrange": True, **grid},
        yaxis={"fixedrange": True, "ticksuffix": " "},
    )


def by_place(figures: WhatIf, axis: str, step: int, *, keep: str) -> go.Figure:
    """Bars of pipeline ranks (``axis`` is ``pp``) or replicas (``dp``). Pooled if there are too many."""
    ratios = figures.by_pp if axis == "pp" else figures.by_dp
    values, index = _pooled(ratios[None, :])
    topology = figures.topology
    ranks = [topology.rank(_place(axis, place)) for place in index[0].tolist()]
    bars = go.Bar(
        x=[f"pp{place}" if axis == "pp" else topology.replica(place) for place in index[0].tolist()],
        y=[_percent(ratio) for ratio in values[0].tolist()],
        customdata=[[rank, step] for rank in ranks],
        marker={"color": BLUE},
        hovertemplate="<b>%{x}</b><br>if only this is slow: step %{y:.1f}% longer<extra></extra>",
    )
    return framed(
        [bars],
        height_px=PLACES_PX,
        keep=keep,
        margin={"l": LEFT_PX},
        bargap=0.35,
        dragmode=False,
        xaxis={"type": "category", "fixedrange": True, "nticks": 24},
        yaxis={"title": titled(LONGER), "nticks": 5, "range": _range(figures), "fixedrange": True},
    )


def worker_colours(figures: WhatIf) -> Colours:
    """The colour scale of workers. It begins at the value that all workers share, so that only workers with a higher
    one are coloured."""
    highest = max(LEAST_TOP * figures.shared, float(figures.by_worker.max()))
    return Colours(scale=SCALE, lowest=figures.shared, highest=highest, title="x ideal")


def workers(figures: WhatIf, suspects: tuple[int, ...], step: int, *, keep: str) -> go.Figure:
    """Workers as pp by dp, with suspects outlined. Replicas are pooled if there are too many."""
    topology = figures.topology
    values, index = _pooled(figures.by_worker.T)
    ranks = topology.grid[index, np.arange(topology.pp)[:, None], 0]
    columns, rows = values.shape[1], values.shape[0]
    colours = worker_colours(figures)
    ticks = np.linspace(colours.lowest, colours.highest, 3).tolist()
    names = [[worker_name(topology, dp, pp) for dp in places] for pp, places in enumerate(index.tolist())]
    cells = go.Heatmap(
        z=values.astype(np.float32),
        x=np.arange(columns),
        y=np.arange(rows),
        customdata=np.dstack([ranks, np.full(ranks.shape, step)]),  # only numbers: a click reads nothing else
        text=names,
        zmin=colours.lowest,
        zmax=colours.highest,
        colorscale=colours.scale,
        xgap=2 if columns <= MIN_SPACED else 0,
        ygap=2,
        hovertemplate="<b>%{text}"
        "</b><br>rank %{customdata[0]}"
        + " and its tensor group" * (topology.tp > 1)
        + "<br>if only these are slow: at most %{z:.3f}x the ideal step<extra></extra>",
        colorbar=colour_bar(colours) | {"tickvals": ticks, "tickformat": ".2f"},
    )
    every = -(-columns // 24)
    columns_named = [topology.replica(dp) for dp in index[0, ::every].tolist()]
    named = rows * (topology.pp > 1)
    stages = {"tickvals": np.arange(named), "ticktext": [f"pp{row}" for row in range(named)]}
    return framed(
        [cells],
        height_px=int(np.clip(ROW_PX * rows + 70, MIN_PX, MAX_PX)),
        keep=keep,
        margin={"r": COLOUR_BAR_PX},
        xaxis={"tickvals": np.arange(columns)[::every], "ticktext": columns_named},
        yaxis=stages | {"autorange": "reversed", "showgrid": False},
        shapes=_outlines(suspects, topology, columns),
    )


def fixing(worst: WorstWorkers, topology: Topology, ideal_s: float, *, step_s: float, keep: str) -> go.Figure:
    """The step time if the slowest workers are made ideal, by their number.

    ``ideal_s`` is a replayed time. The curve starts at ``step_s``, the measured step time, and is scaled to it.
    """
    share = worst.share_gone(ideal_s) * 100
    scale = step_s / float(worst.step_s[0])
    ideal_s *= scale
    last_fixed = worst.workers[worst.num_fixed[1:] - 1].tolist()
    names = ["as measured", *(f"with {worker_name(topology, dp, pp)}" for dp, pp in last_fixed)]
    curve = go.Scatter(
        x=worst.num_fixed,
        y=worst.step_s * scale,
        mode="lines+markers",
        line={"color": BLUE, "width": 1.8, "shape": "linear"},
        customdata=[[name, gone] for name, gone in zip(names, share.tolist(), strict=True)],
        hovertemplate="<b>%{x} fixed</b>, %{customdata[0]}<br>step %{y:.3f} s<br>%{customdata[1]:.0f}% of the "
        "slowdown is gone<extra></extra>",
    )
    last = int(worst.num_fixed[-1])
    line = {"color": GREY, "width": 1, "dash": "dot"}
    return framed(
        [curve],
        height_px=PLACES_PX,
        keep=keep,
        margin={"l": LEFT_PX, "b": BELOW_PX},
        dragmode=False,
        hovermode="x",
        xaxis={
            "title": titled("number of the slowest workers with ideal times"),
            "range": [-0.04 * last, 1.04 * last],
            "tickformat": "d",
            "nticks": min(last + 1, 12),
            "fixedrange": True,
        },
        yaxis={"title": titled("step time, s"), "nticks": 5, "fixedrange": True},
        shapes=[{"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": ideal_s, "y1": ideal_s, "line": line}],
        annotations=[
            {"text": "ideal", "xref": "paper", "x": 1, "y": ideal_s, "xanchor": "right", "yanchor": "bottom"}
            | {"showarrow": False, "font": {"size": 11, "color": GREY}}
        ],
    )


def _percent(ratio: float) -> float:
    return max(0.0, (ratio - 1) * 100)


def _range(figures: WhatIf) -> list[float]:
    """The same range for all bars, so that stages and places can be compared."""
    highest = max(*figures.by_stage.values(), float(figures.by_pp.max()), float(figures.by_dp.max()), LEAST_TOP)
    return [0, 1.05 * _percent(highest)]


def _place(axis: str, index: int) -> Place:
    return Place(dp=0, pp=index, tp=0) if axis == "pp" else Place(dp=index, pp=0, tp=0)


def _pooled(values: Floats) -> tuple[Floats, Ints]:
    """Columns pooled by maximum, and the source column of each value."""
    width = max(1, -(-values.shape[1] // MAX_COLUMNS))
    return pool(values, 1, width), hottest_ranks(values, 1, width)


def _outlines(suspects: tuple[int, ...], topology: Topology, columns: int) -> list[dict[str, object]]:
    width = -(-topology.dp // columns)
    cells = {(topology.place(rank).dp // width, topology.place(rank).pp) for rank in suspects}
    return [outline(dp - 0.5, dp + 0.5, pp - 0.5, pp + 0.5, SUSPECT) for dp, pp in sorted(cells)]
