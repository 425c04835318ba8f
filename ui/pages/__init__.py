"""The pages by view."""

from ui.pages import alerts, clock, fleet, grid, hang, heat_map, overview, runs, timeline, whatif
from ui.pages.interface import Page
from ui.view_state import View

PAGES: dict[View, Page] = {
    View.RUNS: runs.PAGE,
    View.OVERVIEW: overview.PAGE,
    View.HEAT_MAP: heat_map.PAGE,
    View.TIMELINE: timeline.PAGE,
    View.GRID: grid.PAGE,
    View.HANG: hang.PAGE,
    View.WHAT_IF: whatif.PAGE,
    View.FLEET: fleet.PAGE,
    View.CLOCK: clock.PAGE,
    View.ALERTS: alerts.PAGE,
}
