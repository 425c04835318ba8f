"""One alert: what, where, since when, what it costs, what to do, and how to make it quiet."""

import dash_mantine_components as dmc
from dash import dcc, html
from dash.development.base_component import Component

from diagnose.alerts.alert import Alert
from diagnose.alerts.wording import view_of
from diagnose.ranges import list_some
from ui.dashboard.data.alerts import SILENT_AFTER_NS, ToldAlert
from ui.dashboard.pages.interface import SEVERITY_COLOURS
from ui.dashboard.silence import PLACES, amtool_command, rule
from ui.dashboard.view_state import LARGEST, StepRange, View, ViewState
from ui.dashboard.wording import NS_PER_S, long_duration, stamp

LEAST_COST_S = 0.05


def alert_card(told: ToldAlert, now_ns: int) -> Component:
    """An alert that is not over."""
    alert, account = told.alert, told.alert.account
    head = [
        dmc.Badge(account.severity.value, color=SEVERITY_COLOURS[account.severity], variant="light"),
        dmc.Text(alert.kind, fw=600, size="sm"),
        dcc.Link("Show view", href=view_address(alert), className="button small"),
    ]
    parts = [
        dmc.Group(head, gap="xs"),
        dmc.Text(account.summary),
        html.Dl(
            [html.Div([html.Dt(name), html.Dd(value)]) for name, value in _facts(told, now_ns)],
            className="facts wide-facts",
        ),
        dmc.Text(f"Next: {account.next_step}", size="sm") if account.next_step else None,
        _silence(alert),
    ]
    return html.Article([part for part in parts if part is not None], className="finding")


def place(alert: Alert) -> str:
    """``rank 5, host gpu-03``."""
    return ", ".join(
        f"{name} {alert.labels[name]}" for name in ("rank", "host", "device", "stage") if name in alert.labels
    )


def cost(alert: Alert) -> str:
    """What it cost so far."""
    lost_s = alert.account.seconds_lost
    return f"{lost_s:,.1f} s lost" if lost_s >= LEAST_COST_S else "none measured"


def view_address(alert: Alert) -> str:
    """The view in which it shows: why the job stands still, its host, or the overview of its run."""
    run_id, attempt = alert.run
    view, host = view_of(alert)
    account, rank = alert.account, alert.labels.get("rank", "")
    first, last = (min(max(0, step), LARGEST) for step in (account.first_step, account.last_step))
    return ViewState(
        view=View(view),
        run=run_id,
        attempt=attempt,
        steps=StepRange(first, max(first, last)),
        rank=int(rank) if rank.isascii() and rank.isdigit() else None,
        host=host,
    ).search()


def _facts(told: ToldAlert, now_ns: int) -> list[tuple[str, str]]:
    alert = told.alert
    run_id, attempt = alert.run
    facts = [
        ("run", f"{run_id}, attempt {attempt}"),
        ("since", f"{stamp(alert.began_ns)} ({long_duration((now_ns - alert.began_ns) / NS_PER_S)})"),
        ("costs", cost(alert)),
        *((name, alert.labels[name]) for name in PLACES if name in alert.labels),
    ]
    if len(alert.hosts_seen) > len(alert.hosts):
        facts.append(("hosts by now", list_some(alert.hosts_seen, 8)))
    if alert.held_back_by:
        facts.append(("told to nobody", f"explained by {alert.held_back_by}"))
    if now_ns - told.told_ns > SILENT_AFTER_NS:
        facts.append(("last told", f"{stamp(told.told_ns)}: it may be over"))
    return [*facts, ("fingerprint", alert.fingerprint)]


def _silence(alert: Alert) -> Component:
    command = amtool_command(alert)
    in_alertmanager = [
        html.P("In Alertmanager, this alert alone, for two hours:"),
        dmc.Code(command, block=True, className="command"),
    ]
    return html.Details(
        [
            html.Summary("Make it quiet"),
            *(in_alertmanager if command else ()),
            html.P(
                "Or in the watcher's file of rules: nobody is told of this kind, in any run. Start the watcher again."
            ),
            dmc.Code(rule(alert), block=True),
        ],
        className="silence",
    )
