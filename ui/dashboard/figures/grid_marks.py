"""What is drawn over the cells of the grid: the chosen rank, its groups, and arrows from rank to rank."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from telemetry.topology import Place
from ui.dashboard.figures.grid_layout import GridLayout
from ui.dashboard.figures.style import CLEAR, GREY, SUSPECT, outline
from ui.dashboard.records import Ints

WORDED_PX = 44
"""Cells large enough for a word."""
OUTLINE_PX = 8
MAX_ARROWS = 24
EDGE = 0.4
"""From the middle of a cell to where no word stands."""

Point = tuple[float, float]


def around(row: int, column: int, layout: GridLayout) -> Mapping[str, object]:
    """The chosen rank's outline: the style sheet gives it the page's text colour."""
    edge = reach(layout)
    return outline(column - edge, column + edge, row - edge, row + edge, colour=SUSPECT, width_px=3)


def reach(layout: GridLayout) -> float:
    """From the middle of a cell to an outline that can be seen."""
    return max(0.5, OUTLINE_PX / layout.cell_px)


def around_groups(rank: int, layout: GridLayout) -> list[dict[str, object]]:
    """Outlines of a rank's groups: solid its tensor group, dashed the replicas of its place, dotted its pipeline."""
    grid = layout.topology
    here = grid.place(rank)
    bands = range(0, grid.dp, layout.dp_a_band)
    runs = [(here._replace(dp=first), here._replace(dp=min(first + layout.dp_a_band, grid.dp) - 1)) for first in bands]
    found = [_over(*one, layout, "dash") for one in runs if grid.dp > 1]
    stages = [here._replace(pp=pp) for pp in range(grid.pp)]
    found += [_over(one, one, layout, "dot") for one in stages if grid.pp > 1]
    if grid.tp > 1:
        found.append(_over(here._replace(tp=0), here._replace(tp=grid.tp - 1), layout, "solid"))
    return found


def _over(first: Place, last: Place, layout: GridLayout, dash: str) -> dict[str, object]:
    (top, left), (bottom, right) = layout.at(first), layout.at(last)
    found = outline(left - 0.5, right + 0.5, top - 0.5, bottom + 0.5, colour=SUSPECT, width_px=1.5)
    return found | {"line": {"color": SUSPECT, "width": 1.5, "dash": dash}}


def arrows_along(row: Ints, column: Ints, path: Sequence[int], layout: GridLayout) -> list[dict[str, object]]:
    """From each rank of ``path`` to the next. Evidence may tell of a rank that the grid does not have."""
    worded = layout.cell_px >= WORDED_PX
    look = {"xref": "x", "yref": "y", "axref": "x", "ayref": "y", "text": "", "bgcolor": CLEAR, "showarrow": True}
    look |= {"arrowhead": 2, "arrowsize": 1.1, "arrowwidth": 2.2, "arrowcolor": GREY}
    found = []
    hops = [(rank, on) for rank, on in pairwise(path) if min(rank, on) >= 0 and max(rank, on) < len(row)]
    for rank, on in hops[:MAX_ARROWS]:
        tail = (float(column[rank]), float(row[rank]))
        head = (float(column[on]), float(row[on]))
        if worded:
            tail, head = _clear_of_words(tail, head)
        off_px = 0 if worded else 12
        ends = {"ax": tail[0], "ay": tail[1], "x": head[0], "y": head[1], "standoff": off_px, "startstandoff": off_px}
        found.append(look | ends)
    return found


def _clear_of_words(tail: Point, head: Point) -> tuple[Point, Point]:
    """From edge to edge of two cells; where others lie between, along the gap beside them."""
    across, down = head[0] - tail[0], head[1] - tail[1]
    far = max(abs(across), abs(down))
    if far > 1 and not down:
        return (tail[0], tail[1] - EDGE), (head[0], head[1] - EDGE)
    if far > 1 and not across:
        return (tail[0] - EDGE, tail[1]), (head[0] - EDGE, head[1])
    part = 0.32 / max(far, 1e-9)
    return (
        (tail[0] + part * across, tail[1] + part * down),
        (head[0] - part * across, head[1] - part * down),
    )
