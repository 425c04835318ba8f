"""Tags and notes of runs on the pages, and the buttons that change them.

The buttons do not use callbacks of Dash, because every user who may read can start a callback. The browser sends tags
and notes to the collector (``assets/annotations.js``), and the collector checks the token.
"""

import json
from collections.abc import Sequence
from dataclasses import replace

from dash import dcc, html
from dash.development.base_component import Component

from telemetry.finding_log import MAX_TEXT
from telemetry.printable import one_line
from ui.dashboard.data import Reads
from ui.dashboard.data.annotations import MOST_NOTES, run_notes, run_tags
from ui.dashboard.pages.panels import panel
from ui.dashboard.view_state import View, ViewState
from ui.dashboard.wording import stamp


def draw_tags(state: ViewState, reads: Reads) -> Component | None:
    """The tags of a run, and the button for a note. None if there is nothing to show."""
    run_id = reads.newest(state).run_id
    tags = tag_list(run_id, run_tags(reads).get(run_id, ()), state, reads)
    note = html.Button("Write note", type="button", className="plain-button", **{"data-note": run_id})
    parts = [*([tags] if tags else []), *([note] if reads.takes_actions else [])]
    return html.Div(parts, className="tags") if parts else None


def draw_run_notes(state: ViewState, reads: Reads) -> Component | None:
    """The newest notes of a run, with name and time. None without a note."""
    notes = run_notes(reads.newest(state).run_id, reads, MOST_NOTES + 1)
    if not notes:
        return None
    lines = [
        html.Li(
            [
                html.Span(f"{one_line(note['who'])}, {stamp(note['at_ns'])}: ", className="dim"),
                one_line(note["text"], MAX_TEXT),
            ]
        )
        for note in notes[:MOST_NOTES]
    ]
    older = [html.Li("Older notes are not listed", className="dim")] if len(notes) > MOST_NOTES else []
    return panel("Notes, the newest first", html.Ul([*lines, *older], className="actions small"))


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
