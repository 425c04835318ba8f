"""Outlines over the cells of the grid: the chosen rank, and its groups."""

from collections.abc import Mapping
from itertools import pairwise
from math import dist

from ui.dashboard.defaults import groups_of_rank
from ui.dashboard.figures.grid_layout import GridLayout
from ui.dashboard.figures.style import SUSPECT, UNDER, outline
from ui.dashboard.view_state import Group

OUTLINE_PX, UNDER_FROM_PX = 8, 24
"""The least distance from the middle of a cell to its outline, and the smallest cell with a band below the outline."""
BETWEEN = 0.5
"""Distance from the middle of a cell to the gap between cells."""
GROUP_LINES = {
    Group.PP: ("dot", BETWEEN),
    Group.DP: ("dash", BETWEEN),
    Group.CP: ("dashdot", 0.45),
    Group.EP: ("8px,2px,2px,2px,2px,2px", 0.45),
    Group.TP: ("solid", BETWEEN),
}
"""Dashes of the outline of a group, and its distance from the middle of a cell. Groups along cp and ep are part of the
group along dp, so their outlines are inside it. The style sheet draws samples of these lines."""


def around(row: int, column: int, layout: GridLayout) -> Mapping[str, object]:
    """The outline of the chosen rank, in the text colour of the page."""
    edge = reach(layout)
    return outline(column - edge, column + edge, row - edge, row + edge, colour=SUSPECT, width_px=3)


def reach(layout: GridLayout) -> float:
    """The distance from the middle of a cell to a visible outline."""
    return max(0.5, OUTLINE_PX / layout.cell_px)


def around_groups(rank: int, layout: GridLayout) -> list[dict[str, object]]:
    """Outlines of the groups of a rank, each in its line style: one for each row of neighbouring cells."""
    topology, found = layout.topology, []
    for group, members in groups_of_rank(topology, rank):
        cells = [layout.at(topology.place(member)) for member in members]
        ends = [at for at, (here, there) in enumerate(pairwise(cells), start=1) if dist(here, there) > 1]
        runs = zip([0, *ends], [*ends, len(cells)], strict=True)
        found += [line for first, end in runs for line in _over(cells[first], cells[end - 1], group, layout.cell_px)]
    return found


def _over(first: tuple[int, int], last: tuple[int, int], group: Group, cell_px: float) -> list[dict[str, object]]:
    (top, left), (bottom, right), (dash, edge) = first, last, GROUP_LINES[group]
    box = left - edge, right + edge, top - edge, bottom + edge
    line = outline(*box) | {"line": {"color": SUSPECT, "width": 1.5, "dash": dash}}
    return [outline(*box, UNDER, width_px=5), line] if edge < BETWEEN and cell_px >= UNDER_FROM_PX else [line]
