"""The pages by view."""

from ui.dashboard.pages.alerts import page as alerts
from ui.dashboard.pages.clock import page as clock
from ui.dashboard.pages.fleet import page as fleet
from ui.dashboard.pages.grid import page as grid
from ui.dashboard.pages.hang import page as hang
from ui.dashboard.pages.heat_map import page as heat_map
from ui.dashboard.pages.interface import Page
from ui.dashboard.pages.overview import page as overview
from ui.dashboard.pages.runs import page as runs
from ui.dashboard.pages.timeline import page as timeline
from ui.dashboard.pages.whatif import page as whatif
from ui.dashboard.view_state import View

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
