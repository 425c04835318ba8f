"""Tags of runs on the pages, and the button that edits them.

The button does not use a callback of Dash, because every user who may read can start a callback. The browser sends the
tags to the collector (``assets/annotations.js``), and the collector checks the token.
"""

import json
from collections.abc import Sequence
from dataclasses import replace

from dash import dcc, html
from dash.development.base_component import Component

from ui.dashboard.data import Reads
from ui.dashboard.data.annotations import run_tags
from ui.dashboard.view_state import View, ViewState


def draw_tags(state: ViewState, reads: Reads) -> Component | None:
    """The tags of a run. None if there is nothing to show."""
    run_id = reads.newest(state).run_id
    return tag_list(run_id, run_tags(reads).get(run_id, ()), state, reads)


def tag_list(run_id: str, tags: Sequence[str], state: ViewState, reads: Reads) -> Component | None:
    """Tags, each with a link to the runs that have it, and the button if this server accepts tags."""
    links = [
        dcc.Link(
            tag, href=replace(state, view=View.RUNS, tag=tag).search(), className="tag", title=f"runs tagged {tag}"
        )
        for tag in tags
    ]
    edit = html.Button(
        "Edit tags" if tags else "Add tags",
        type="button",
        className="plain-button",
        **{"data-tags": json.dumps({"run_id": run_id, "tags": list(tags)}), "aria-label": f"Edit the tags of {run_id}"},
    )
    parts = [*links, *([edit] if reads.takes_actions else [])]
    return html.Div(parts, className="tags") if parts else None
