"""The SQL page: run SQL of your own on the tables, as a database user that cannot write.

The text is not in the address, so that no link runs SQL. The browser sends it to the route ``sql`` and shows the rows
(``assets/sql.js``, ``ui/dashboard/serving/sql_route.py``).
"""

import dash_mantine_components as dmc
from dash import dcc, html
from dash.development.base_component import Component

from ui.dashboard.data import Reads
from ui.dashboard.pages.interface import Page, Region, region_id
from ui.dashboard.pages.panels import loading, notice, panel
from ui.dashboard.pages.sql.starting_points import StartingPoint, starting_points
from ui.dashboard.view_state import ViewState

OFF = (
    "This page needs a ClickHouse server. Set RANKSCOPE_SQL_STORE of this server to the address of the ClickHouse "
    "server, with a database user that cannot write. See docs/guides/store.md."
)
HOW = "One query, without a semicolon. At most 1,000 rows are shown. The database user limits the time of a query."


def skeleton() -> Component:
    return html.Div(loading(320), id=region_id("sql"))


def draw_sql(state: ViewState, reads: Reads) -> Component:
    """The text field, the place of the rows, and the queries to start from."""
    if not reads.has_sql:
        return notice("SQL is switched off", OFF)
    points = starting_points(reads.newest(state))
    field = [
        html.Label("Query", htmlFor="sql-text"),
        dcc.Textarea(id="sql-text", value=points[0].sql, className="sql-text", spellCheck="false", rows=12),
        dmc.Group(
            [
                html.Button("Run", className="button primary", **{"data-sql": "run"}),
                html.Span("Ctrl+Enter", className="dim small"),
                html.Span("", className="sql-state small", role="status"),
            ],
            gap="sm",
        ),
        dmc.Text(HOW, size="sm", c="dimmed"),
        html.Div(className="sql-rows", tabIndex="0", role="region", **{"aria-label": "rows"}),
    ]
    return dmc.Stack([panel("SQL", dmc.Stack(field, gap="xs")), panel("Queries of the pages", _list(points))], gap="md")


def _list(points: list[StartingPoint]) -> Component:
    items = [
        html.Li(
            html.Button(
                f"{point.view}: {point.what}",
                className="button small",
                **{"data-sql": "use", "data-text": point.sql},
            )
        )
        for point in points
    ]
    return html.Ul(items, className="sql-points")


PAGE = Page(title="SQL", skeleton=skeleton, regions={"sql": Region(draw=draw_sql, live=False)}, needs_step=False)
