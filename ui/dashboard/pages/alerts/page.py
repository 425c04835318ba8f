"""The alerts page: alerts that are firing, pending or over, as the watcher reported them.

Alerts of live runs come first, the worst of them first. Alerts of ended runs do not fire.

Each alert shows what, where, since when, cost, next step, what people did about it, and buttons to act.
"""

import shlex
from dataclasses import replace

import dash_mantine_components as dmc
from dash import dcc, html
from dash.development.base_component import Component

from diagnose.alerts.alert import Alert, Phase
from diagnose.alerts.hooks.silences import PLACES, escaped, matchers_of
from diagnose.alerts.logged import ActionsOfFindings, actions_of
from diagnose.alerts.notice import cost_of, view_of
from diagnose.alerts.quiet import Quiet
from diagnose.alerts.reported import SILENT_AFTER_NS, ReportedAlert, ReportedAlerts
from diagnose.ranges import list_some
from telemetry.stages import STAGE_BY_LABEL
from ui.dashboard.data import Reads
from ui.dashboard.data.alerts import SharedReader, newest_of_log, reported_alerts
from ui.dashboard.pages.finding_actions import action_buttons, action_list
from ui.dashboard.pages.interface import SEVERITY_COLOURS, Page, Region, region_id
from ui.dashboard.pages.panels import loading, notice, panel, stamp_parts
from ui.dashboard.view_state import LARGEST, StepRange, View, ViewState
from ui.dashboard.wording import NS_PER_S, count, long_duration, named_kind, stamp


def amtool_command(alert: Alert) -> str:
    """The command that silences only ``alert`` in Alertmanager for two hours. Labels that ``alert`` lacks must be
    absent.

    Names are untrusted, so each word is quoted for a shell. Empty if a label could control a terminal.
    """
    if not all(value.isprintable() for value in alert.labels.values()):
        return ""
    matchers = [f'{name}="{escaped(value)}"' for name, value in sorted(matchers_of(alert.labels).items())]
    arguments = ["amtool", "silence", "add", "--alertmanager.url=http://ALERTMANAGER:9093", "--duration=2h"]
    return shlex.join([*arguments, f"--comment=rankscope {alert.fingerprint}", *matchers])


def rule(alert: Alert) -> str:
    """The rule that disables notifications of this kind in every run."""
    return f"[rules.{alert.kind}]\nhooks = []"


def alert_card(entry: ReportedAlert, actions: ActionsOfFindings, state: ViewState, reads: Reads) -> Component:
    """An open alert, with the actions on it."""
    alert, account, now_ns = entry.alert, entry.alert.account, reads.now_ns()
    quiet = actions.quiets.of(alert.fingerprint, alert.raised_ns)
    head = [
        dmc.Badge(account.severity.value, color=SEVERITY_COLOURS[account.severity], variant="light"),
        dmc.Text(named_kind(alert.kind), fw=600, size="sm"),
        *_quiet_badge(quiet, now_ns),
        dcc.Link("Show view", href=view_address(alert, state), className="button small"),
    ]
    parts = [
        dmc.Group(head, gap="xs"),
        dmc.Text(account.summary),
        html.Dl(
            [html.Div([html.Dt(name), html.Dd(value)]) for name, value in _facts(entry, state, now_ns)],
            className="facts wide-facts",
        ),
        dmc.Text(f"Next: {account.next_step}", size="sm") if account.next_step else None,
        action_list(actions.by_finding.get((alert.fingerprint, alert.raised_ns), ())),
        action_buttons(alert.fingerprint, alert.raised_ns, quiet, reads, is_open=True) if alert.raised_ns else None,
        _silence(alert),
    ]
    return html.Article([part for part in parts if part is not None], className="finding")


def _quiet_badge(quiet: Quiet | None, now_ns: int) -> list[Component]:
    if quiet is None or not quiet.is_on(now_ns):
        return []
    text = "acknowledged" if quiet.acknowledged else f"silenced until {stamp(quiet.silenced_until_ns)[:-3]}"
    return [dmc.Badge(text, color="grape", variant="light")]


def place(alert: Alert) -> str:
    """The place of an alert, such as ``rank 5, host gpu-03``."""
    return ", ".join(
        f"{name} {alert.labels[name]}" for name in ("rank", "host", "device", "stage") if name in alert.labels
    )


def cost(alert: Alert) -> str:
    return cost_of(alert.account, is_over=not alert.is_alive) or "none measured"


def view_address(alert: Alert, state: ViewState) -> str:
    """The view that shows the alert: the hang page, its host, or the overview of its run. Other choices of ``state``
    stay."""
    run_id, attempt = alert.run
    view, host = view_of(alert)
    account, rank = alert.account, alert.labels.get("rank", "")
    first, last = (min(max(0, step), LARGEST) for step in (account.first_step, account.last_step))
    chosen = state.at_run(run_id, attempt).at_steps(StepRange(first, max(first, last)))
    if rank.isascii() and rank.isdigit():
        chosen = chosen.at_rank(int(rank))
    if stage := STAGE_BY_LABEL.get(alert.labels.get("stage", "")):
        chosen = chosen.at_stage(stage)
    return replace(chosen, view=View(view), host=host or chosen.host).search()


def _facts(entry: ReportedAlert, state: ViewState, now_ns: int) -> list[tuple[str, Component | str]]:
    alert = entry.alert
    run_id, attempt = alert.run
    run = replace(state.at_run(run_id, attempt), view=View.OVERVIEW).search()
    step = f"{alert.onset.in_words}, " if alert.onset else ""
    seen_later = [("first seen", stamp(alert.began_ns))] if alert.since_ns != alert.began_ns else []
    facts: list[tuple[str, Component | str]] = [
        ("run", html.Span([dcc.Link(run_id, href=run, className="run-link"), f", attempt {attempt}"])),
        ("since", f"{step}{stamp(alert.since_ns)} ({long_duration((now_ns - alert.since_ns) / NS_PER_S)})"),
        *seen_later,
        ("costs", cost(alert)),
        *((name, alert.labels[name]) for name in PLACES if name in alert.labels),
    ]
    if len(alert.hosts_seen) > len(alert.hosts):
        facts.append(("hosts since its start", list_some(alert.hosts_seen, 8)))
    if alert.suppressed_by:
        facts.append(("not sent", f"explained by {alert.suppressed_by}"))
    if now_ns - entry.reported_ns > SILENT_AFTER_NS:
        facts.append(("last report", f"{stamp(entry.reported_ns)}: the alert may be over"))
    return [*facts, ("fingerprint", alert.fingerprint)]


def _silence(alert: Alert) -> Component:
    command = amtool_command(alert)
    in_alertmanager = [
        html.P("In Alertmanager: silence only this alert for two hours."),
        dmc.Code(command, block=True, className="command"),
    ]
    return html.Details(
        [
            html.Summary("Silence elsewhere"),
            *(in_alertmanager if command else ()),
            html.P(
                "Or send no alert of this kind: add these lines to the watcher's rules file, and restart the watcher."
            ),
            dmc.Code(rule(alert), block=True),
        ],
        className="silence",
    )


MOST_CARDS = 50
MOST_PAST = 200
START = "rankscope collect --alerts alerts.toml"
START_APART = "rankscope alerts run --config alerts.toml --store http://COLLECTOR:8719"
PAST_COLUMNS = ("Ended", "Kind", "Where", "Run", "Lasted", "Cost", "What")


def skeleton() -> Component:
    regions = [html.Div(loading(height), id=region_id(name)) for name, height in (("watcher", 60), ("firing", 160))]
    return dmc.Stack([*regions, html.Div(id=region_id("pending")), html.Div(id=region_id("past"))], gap="md")


def _draw_watcher(state: ViewState, reads: Reads) -> Component:
    everything, now_ns = reported_alerts(reads), reads.now_ns()
    if not everything.heard_ns:
        return _no_watcher()
    parts = []
    if everything.is_silent(now_ns) and any(now_ns - row["last_ns"] < SILENT_AFTER_NS for row in reads.run_rows()):
        parts.append(_silent_watcher(everything.heard_ns, now_ns))
    if everything.num_unreadable:
        strange = f"{count(everything.num_unreadable, 'alert')} cannot be read here"
        parts.append(notice(strange, "The watcher and this dashboard should be of the same version.", colour="yellow"))
    return dmc.Stack([html.P(_says(everything.of(state.run), state, now_ns), className="says"), *parts], gap="sm")


def _draw_firing(state: ViewState, reads: Reads) -> Component | None:
    alerts = reported_alerts(reads)
    if not alerts.heard_ns:
        return None
    return _cards("Firing", alerts.of(state.run).in_phase(Phase.FIRING), "No alert is firing.", state, reads)


def _draw_pending(state: ViewState, reads: Reads) -> Component | None:
    alerts = reported_alerts(reads).of(state.run).in_phase(Phase.PENDING)
    return _cards("Pending", alerts, "", state, reads) if alerts else None


def _draw_past(state: ViewState, reads: Reads) -> Component | None:
    alerts = reported_alerts(reads)
    if not alerts.heard_ns:
        return None
    past = alerts.of(state.run).in_phase(Phase.RESOLVED)
    if not past:
        return panel("History", dmc.Text("No alert has ended yet.", size="sm", c="dimmed"))
    head = html.Thead(html.Tr([html.Th(name, scope="col") for name in PAST_COLUMNS]))
    body = html.Tbody([_past_row(entry, alerts, state) for entry in past[:MOST_PAST]])
    more = f" (the newest {MOST_PAST} of {len(past):,})" if len(past) > MOST_PAST else ""
    table = html.Table([head, body], className="runs-table", **{"aria-label": "alerts that are over"})
    return panel(f"History{more}", html.Div(table, className="wide"))


def _cards(title: str, entries: tuple[ReportedAlert, ...], nothing: str, state: ViewState, reads: Reads) -> Component:
    if not entries:
        return panel(title, dmc.Text(nothing, size="sm", c="dimmed"))
    shown = entries[:MOST_CARDS]
    actions = actions_of(
        SharedReader(reads, newest_of_log(reads)), tuple(sorted({entry.alert.fingerprint for entry in shown}))
    )
    cards = [alert_card(entry, actions, state, reads) for entry in shown]
    more = f", the worst {MOST_CARDS} of them" if len(entries) > MOST_CARDS else ""
    return panel(f"{title} ({len(entries):,}{more})", dmc.Stack(cards, gap="sm"))


def _past_row(entry: ReportedAlert, alerts: ReportedAlerts, state: ViewState) -> Component:
    alert = entry.alert
    run_id, attempt = alert.run
    run = replace(state.at_run(run_id, attempt), view=View.OVERVIEW).search()
    cells = [
        html.Span(stamp_parts(alert.changed_ns), title=f"since {stamp(alert.since_ns)}"),
        dcc.Link(named_kind(alert.kind), href=view_address(alert, state)),
        place(alert),
        dcc.Link(run_id, href=run, className="run-link"),
        long_duration((alert.changed_ns - alert.since_ns) / NS_PER_S),
        cost(alert),
        html.Span([alert.account.summary, _ended(entry, alerts)], className="past-summary"),
    ]
    return html.Tr([html.Td(cell) for cell in cells])


def _ended(entry: ReportedAlert, alerts: ReportedAlerts) -> str:
    """Why an alert is over although the watcher has not resolved it; otherwise empty."""
    if not entry.ended_with_run:
        return ""
    alert = entry.alert
    has_reported = max(entry.reported_ns, alerts.checked_ns.get(alert.run, 0)) > alert.changed_ns
    return " (the run has ended)" if has_reported else " (the run has ended; the watcher has not reported since)"


def _says(alerts: ReportedAlerts, state: ViewState, now_ns: int) -> list[str | Component]:
    firing, pending = (len(alerts.in_phase(phase)) for phase in (Phase.FIRING, Phase.PENDING))
    watched = sum(now_ns - at_ns <= SILENT_AFTER_NS for at_ns in alerts.checked_ns.values())
    of_run = f"Run {state.run}: " if state.run else ""
    text = f"{of_run}{firing:,} firing, {pending:,} pending. The watcher checks {count(watched, 'run')} now. "
    log = dcc.Link("Findings log", href=replace(state, view=View.FINDINGS_LOG).search())
    all_runs = dcc.Link("Alerts of all runs", href=state.at_run("").search())
    return [text, log, *([". ", all_runs] if state.run else [])]


def _no_watcher() -> Component:
    return dmc.Stack(
        [
            dmc.Title("No watcher", order=2),
            dmc.Text("No alert watcher has reported to this store. Start one together with the collector:"),
            dmc.Code(START, block=True),
            dmc.Text("Or start it alone, on any host:"),
            dmc.Code(START_APART, block=True),
            dmc.Text(
                "The watcher must connect to a collector: if it reads the store directly, this page has no alerts. "
                "If the collector has tokens, the watcher needs RANKSCOPE_TOKEN, or both the read token and the write "
                "token. If no alert arrives, read the standard error of the watcher. Rules and hooks: "
                "docs/guides/alerts.md.",
                size="sm",
                c="dimmed",
            ),
        ],
        gap="xs",
        maw=680,
        className="empty",
    )


def _silent_watcher(heard_ns: int, now_ns: int) -> Component:
    return notice(
        f"The watcher last reported {long_duration((now_ns - heard_ns) / NS_PER_S)} ago, at {stamp(heard_ns)}",
        "Runs are active, but no watcher checks them. The problems on this page may have ended, and new problems are "
        "not shown. "
        f"Restart the watcher: {START}",
        colour="orange",
    )


def freshness(state: ViewState, reads: Reads) -> list[object]:
    alerts = reported_alerts(reads)
    num_open = sum(entry.alert.is_alive for entry in alerts.alerts)
    return [alerts.heard_ns, alerts.is_silent(reads.now_ns()), num_open, *newest_of_log(reads)]


PAGE = Page(
    title="Alerts",
    skeleton=skeleton,
    regions={
        "watcher": Region(draw=_draw_watcher),
        "firing": Region(draw=_draw_firing, quiet=True),
        "pending": Region(draw=_draw_pending, quiet=True),
        "past": Region(draw=_draw_past, quiet=True),
    },
    preload=lambda state, reads: reported_alerts(reads),
    freshness=freshness,
    needs_run=False,
    needs_step=False,
)
