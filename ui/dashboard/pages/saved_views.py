"""The menu of saved views in the header. A view is the address of a page under a name, of one run or of all runs.

The buttons do not use callbacks of Dash, because every user who may read can start a callback. The browser sends the
view to the collector (``assets/saved_views.js``), and the collector checks the token.
"""

import json
from dataclasses import replace
from typing import Any

from dash import dcc, html
from dash.development.base_component import Component

from telemetry.annotations import MAX_VIEW_NAME
from telemetry.printable import one_line
from ui.dashboard.address import parse_search
from ui.dashboard.data import Reads
from ui.dashboard.data.annotations import saved_views
from ui.dashboard.pages.frame import is_of_all_runs
from ui.dashboard.view_state import ViewState
from ui.dashboard.wording import stamp


def opened(address: str, state: ViewState, *, of_run: bool) -> ViewState:
    """The view to which a saved view leads. ``state``: the present view. ``of_run``: whether the view is saved for a
    run.

    A view of all runs applies to the run that is open. A span and times of a timeline belong to one step of one run, so
    they are left out.
    """
    view = parse_search(address).state
    if of_run:
        return replace(view, run=state.run)
    return replace(view, run=state.run, attempt=state.attempt, span=None, zoom=None, area=None)


def draw_views(state: ViewState, reads: Reads) -> Component | None:
    """The menu. None if no view is saved and this server accepts none."""
    run_id = "" if is_of_all_runs(state) else reads.newest(state).run_id
    views = saved_views(run_id, reads)
    if not views and not reads.takes_actions:
        return None
    exactly = replace(state, run=run_id or state.run)
    groups = [
        ("This run", [row for row in views if row["run_id"]]),
        ("All runs", [row for row in views if not row["run_id"]]),
    ]
    parts = [_group(title, rows, exactly, reads) for title, rows in groups if rows]
    save = html.Button("Save this view …", type="button", className="button small", **{"data-save-view": run_id})
    nothing = [] if parts else [html.P("No view is saved", className="dim")]
    menu = html.Div([*nothing, *parts, *([save] if reads.takes_actions else [])], className="views-list")
    return html.Details([html.Summary("Views", className="button small"), menu], className="views-menu")


def _group(title: str, rows: list[dict[str, Any]], state: ViewState, reads: Reads) -> Component:
    items = [html.Li(_item(row, state, reads)) for row in sorted(rows, key=lambda row: str(row["name"]).casefold())]
    return html.Div([html.H2(title), html.Ul(items)])


def _item(row: dict[str, Any], state: ViewState, reads: Reads) -> list[Component]:
    name = one_line(row["name"], MAX_VIEW_NAME)
    address = opened(row["text"], state, of_run=bool(row["run_id"])).search()
    link = dcc.Link(name, href=address, title=f"saved by {one_line(row['who'])}, {stamp(row['at_ns'])}")
    remove = html.Button(
        html.Span("✕", **{"aria-hidden": "true"}),
        type="button",
        className="plain-button",
        title=f"Remove the view {name}",
        **{
            "data-remove-view": json.dumps({"run_id": row["run_id"], "name": row["name"]}),
            "aria-label": f"Remove the view {name}",
        },
    )
    return [link, *([remove] if reads.takes_actions else [])]
