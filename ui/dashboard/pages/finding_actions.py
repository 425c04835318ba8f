"""What people did about a finding, and buttons to acknowledge it, to write a note, and to silence it.

The buttons do not use callbacks of Dash, because every user who may read can start a callback. The browser sends the
action to the collector (``assets/findings.js``), and the collector checks the token.
"""

import json
from collections.abc import Sequence

import dash_mantine_components as dmc
from dash import html
from dash.development.base_component import Component

from diagnose.alerts.logged import LoggedAction
from diagnose.alerts.quiet import Quiet
from telemetry.finding_log import Action
from telemetry.printable import one_line
from ui.dashboard.data import Reads

MOST_ACTIONS = 20
"""At most this many actions of one finding are listed: the newest ones."""
MAX_LINE = 1200
LABELS = {
    Action.ACKNOWLEDGE: "Acknowledge",
    Action.REOPEN: "Withdraw acknowledgement",
    Action.NOTE: "Note",
    Action.SILENCE: "Silence",
    Action.END_SILENCE: "End silence",
}


def action_list(actions: Sequence[LoggedAction]) -> Component | None:
    """Who did what and when, the oldest action first. None if there is no action."""
    if not actions:
        return None
    lines = [html.Li(one_line(action.in_words, MAX_LINE)) for action in actions[-MOST_ACTIONS:]]
    left_out = len(actions) - len(lines)
    older = [html.Li(f"{left_out} older actions are not listed")] if left_out else []
    return html.Ul([*older, *lines], className="actions small")


def action_buttons(fingerprint: str, raised_ns: int, quiet: Quiet | None, reads: Reads, *, is_open: bool) -> Component:
    """The buttons of a finding. If this server accepts no actions, a command for the same purpose."""
    if not reads.takes_actions:
        command = f"rankscope alerts acknowledge {fingerprint} --store http://COLLECTOR:8719"
        return dmc.Text(["Acknowledge: ", dmc.Code(command)], size="sm", c="dimmed")
    finding = json.dumps({"fingerprint": fingerprint, "raised_ns": str(raised_ns)})
    buttons = [
        html.Button(
            LABELS[action],
            type="button",
            className="button small",
            **{"data-finding": finding, "data-action": str(action)},
        )
        for action in _possible(quiet, reads.now_ns(), is_open=is_open)
    ]
    return dmc.Group(buttons, gap="xs")


def _possible(quiet: Quiet | None, now_ns: int, *, is_open: bool) -> list[Action]:
    """The actions that can be taken now. A resolved finding can still be silenced, because it may return."""
    is_acknowledged = quiet is not None and quiet.acknowledged
    is_silenced = quiet is not None and quiet.silenced_until_ns > now_ns
    acknowledge = [Action.REOPEN if is_acknowledged else Action.ACKNOWLEDGE] if is_open else []
    return [*acknowledge, Action.NOTE, Action.SILENCE, *([Action.END_SILENCE] if is_silenced else [])]
