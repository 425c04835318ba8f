"""The findings log: every finding that the watcher raised, over all runs and weeks, with filters. The newest first.

Each finding has details that open: what people did about it, and buttons to act.
"""

from dataclasses import replace

import dash_mantine_components as dmc
from dash import dcc, html
from dash.development.base_component import Component

from diagnose.alerts.logged import LoggedFinding, LogPage, LogState, log_page
from diagnose.alerts.moments import moment_ns
from diagnose.alerts.notice import best_view
from diagnose.alerts.reported import has_ended
from diagnose.findings import LEAST_COST_S, Kind, Severity, cost_in_words, kind_in_words
from diagnose.ranges import list_some
from telemetry.finding_log import DAY_S
from telemetry.printable import cut, one_line
from telemetry.stores.queries.findings import FAR_NS, FindingFilter
from ui.dashboard.data import Reads
from ui.dashboard.data.alerts import SharedReader, newest_of_log, newest_states
from ui.dashboard.log_view import ALL, LogView
from ui.dashboard.pages.controls import bar, link_button
from ui.dashboard.pages.finding_actions import action_buttons, action_list
from ui.dashboard.pages.interface import SEVERITY_COLOURS, Page, Region, control_id, region_id
from ui.dashboard.pages.panels import controls_panel, loading, notice, stamp_parts
from ui.dashboard.view_state import LARGEST, StepRange, View, ViewState
from ui.dashboard.wording import NS_PER_S, count, long_duration, named_kind, stamp

ROWS = 50
"""Findings on one page."""
MINUTE_NS = 60 * NS_PER_S
MAX_SUMMARY = 140
NEWEST = {"Last 24 hours": "24h", "Last 7 days": "7d", "Last 30 days": "30d"}
"""Name of a link -> the time from which it shows findings."""
COLUMNS = ("State", "Severity", "Finding", "Run", "Where", "Since", "Lasted")
STATE_COLOURS = {
    LogState.FIRING: "red",
    LogState.ACKNOWLEDGED: "grape",
    LogState.SILENCED: "grape",
    LogState.RESOLVED: "gray",
}


def skeleton() -> Component:
    return html.Div(
        [
            controls_panel("log"),
            html.Div(loading(240), id=region_id("log")),
        ],
        className="runs-page",
    )


def log_filter(state: ViewState, now_ns: int) -> FindingFilter:
    """The filter of an address. Durations count back from the current minute, so that pages share answers."""
    minute_ns = now_ns - now_ns % MINUTE_NS + MINUTE_NS
    return FindingFilter(
        run_id=state.run,
        find=state.find,
        kind=state.log.kind,
        severity=state.log.severity,
        host=state.host,
        since_ns=moment_ns(state.log.since, minute_ns) if state.log.since else 0,
        until_ns=moment_ns(state.log.until, minute_ns) if state.log.until else FAR_NS,
    )


def page_of(state: ViewState, reads: Reads) -> LogPage:
    now_ns = reads.now_ns()
    chosen = log_filter(state, now_ns)
    reader = SharedReader(reads, newest_of_log(reads, state.run))
    return log_page(reader, chosen, state.log.state, now_ns, offset=(state.log.page - 1) * ROWS, limit=ROWS)


def control_values(state: ViewState, reads: Reads) -> dict[str, object]:
    view = state.log
    choices = {"log-kind": view.kind or ALL, "log-severity": view.severity or ALL, "log-state": view.state or ALL}
    texts = {"log-since": view.since, "log-until": view.until, "log-find": state.find, "log-host": state.host}
    return {name: str(value) for name, value in (choices | texts).items()}


def _draw_controls(state: ViewState, reads: Reads) -> Component:
    values = control_values(state, reads)
    kinds = {ALL: "all kinds"} | {str(kind): kind_in_words(kind) for kind in Kind}
    severities = {ALL: "all"} | {str(severity): str(severity) for severity in Severity}
    states = {ALL: "all"} | {str(each): str(each) for each in LogState}
    run = [] if state.run else [_text("Run", "log-find", "part of a name", values)]
    return bar(
        *run,
        _select("Kind", "log-kind", kinds, values, 200),
        _select("Severity", "log-severity", severities, values, 110),
        _select("State", "log-state", states, values, 140),
        _text("Host", "log-host", "name", values),
        _text("From", "log-since", "7d, or 2026-11-27 14:00", values),
        _text("To", "log-until", "2026-11-28", values),
    )


def _draw_links(state: ViewState, reads: Reads) -> Component:
    """Links to the newest findings."""
    links = [
        link_button(text, replace(state, log=replace(state.log, since=since, until="", page=1)))
        for text, since in NEWEST.items()
    ]
    return html.Div(links, className="links")


def _select(label: str, name: str, choices: dict[str, str], values: dict[str, object], width: int) -> Component:
    data = [{"value": value, "label": text} for value, text in choices.items()]
    return dmc.Select(
        label=label, id=control_id(name), value=str(values[name]), data=data, w=width, allowDeselect=False, size="sm"
    )


def _text(label: str, name: str, placeholder: str, values: dict[str, object]) -> Component:
    value = str(values[name])
    return dmc.TextInput(label=label, id=control_id(name), value=value, placeholder=placeholder, debounce=500, w=180)


def _draw_log(state: ViewState, reads: Reads) -> Component:
    page = page_of(state, reads)
    if not page.total:
        return _nothing(state)
    states = newest_states(sorted({finding.run_id for finding in page.findings if not finding.is_resolved}), reads)
    rows = []
    for finding in page.findings:
        heard = states.get((finding.run_id, finding.attempt))
        is_over = finding.is_resolved or has_ended(finding.kind, heard, reads.now_ns())
        rows.append(_row(finding, state, reads, is_open=not is_over))
    head = html.Thead(html.Tr([html.Th(name, scope="col") for name in COLUMNS]))
    table = html.Table([head, *rows], className="runs-table log-table", **{"aria-label": "findings"})
    below = [_pages(state, page)] if page.total > ROWS else []
    return html.Section([_pages(state, page), html.Div(table, className="wide"), *below], className="panel")


def _nothing(state: ViewState) -> Component:
    everything = replace(state, find="", host="", log=LogView())
    if state == everything:
        return notice(
            "No finding is in the log",
            "The alert watcher writes it: `rankscope collect --alerts alerts.toml`, or `rankscope alerts run`.",
        )
    link = dcc.Link("Show all findings", href=everything.search(), className="button")
    return notice("No finding matches", [html.P("Remove a condition, or:"), link])


def _pages(state: ViewState, page: LogPage) -> Component:
    """Which findings are shown, with links to newer and older ones."""
    number, last = state.log.page, max(1, -(-page.total // ROWS))
    first = (number - 1) * ROWS + 1
    shown = f"{first:,} to {min(number * ROWS, page.total):,} of " if page.total > ROWS and page.findings else ""
    links = [
        dcc.Link(text, href=replace(state, log=replace(state.log, page=to)).search(), className="button small")
        for text, to in (("Newer", min(number - 1, last)), ("Older", number + 1))
        if 1 <= to <= last
    ]
    return dmc.Group([dmc.Text(f"{shown}{count(page.total, 'finding')}", size="sm"), *links], gap="sm")


def _row(finding: LoggedFinding, state: ViewState, reads: Reads, *, is_open: bool) -> Component:
    """Two rows of the table: the finding, and its summary. A click on the summary opens the details."""
    now_ns = reads.now_ns()
    known = finding.state(now_ns)
    badge = str(known) if is_open or finding.is_resolved else "run ended"
    colour = STATE_COLOURS[known] if badge != "run ended" else "gray"
    run = replace(state.at_run(finding.run_id, finding.attempt), view=View.OVERVIEW)
    end_ns = finding.changed_ns if finding.is_resolved else now_ns
    lasted = long_duration((end_ns - finding.since_ns) / NS_PER_S) if is_open or finding.is_resolved else "unknown"
    cells = [
        dmc.Badge(badge, color=colour, variant="light"),
        dmc.Badge(str(finding.severity), color=SEVERITY_COLOURS[finding.severity], variant="light"),
        dcc.Link(named_kind(finding.kind), href=_address(finding, state)),
        dcc.Link(finding.run_id, href=run.search(), className="run-link"),
        _place(finding),
        _since(finding),
        lasted,
    ]
    details = html.Td(_details(finding, reads, is_open=is_open), colSpan=len(COLUMNS))
    rows = [html.Tr([html.Td(cell) for cell in cells]), html.Tr(details)]
    return html.Tbody(rows, className="log-finding", key=f"{finding.fingerprint}-{finding.raised_ns}")


def _details(finding: LoggedFinding, reads: Reads, *, is_open: bool) -> Component:
    facts = [
        ("first seen", stamp(finding.raised_ns)),
        ("resolved", stamp(finding.changed_ns)) if finding.is_resolved else None,
        ("cost", cost_in_words(finding.seconds_lost, finding.basis)) if finding.seconds_lost >= LEAST_COST_S else None,
        ("hosts", list_some(finding.hosts, 8)) if finding.hosts else None,
        ("explained by", finding.cause) if finding.cause else None,
        ("fingerprint", finding.fingerprint),
    ]
    terms = [html.Div([html.Dt(name), html.Dd(one_line(value))]) for name, value in filter(None, facts)]
    whole = one_line(finding.summary)
    parts = [
        dmc.Text(whole, size="sm") if len(whole) > MAX_SUMMARY else None,
        dmc.Text(f"Next: {one_line(finding.next_step)}", size="sm") if finding.next_step else None,
        html.Dl(terms, className="facts wide-facts"),
        action_list(finding.actions),
        action_buttons(finding.fingerprint, finding.raised_ns, finding.quiet, reads, is_open=is_open),
    ]
    summary = html.Summary(cut(whole, MAX_SUMMARY) or "details")
    return html.Details([summary, *[part for part in parts if part is not None]], className="log-details")


def _place(finding: LoggedFinding) -> str:
    ranks = f"rank{'s' * (not finding.ranks.isdecimal())} {finding.ranks}" if finding.ranks else ""
    places = [ranks, list_some(finding.hosts, 2) if finding.hosts else "", finding.device]
    return cut(", ".join(filter(None, places)) or finding.stage, 80)


def _since(finding: LoggedFinding) -> Component:
    step = f", {finding.onset.in_words}" if finding.onset else ""
    return html.Span([*stamp_parts(finding.since_ns, seconds=True), html.Span(step, className="dim")])


def _address(finding: LoggedFinding, state: ViewState) -> str:
    """The best view of the finding, from its onset on."""
    view, host = best_view(finding.kind, finding.hosts[0] if finding.hosts else "")
    chosen = state.at_run(finding.run_id, finding.attempt)
    if finding.onset:
        chosen = chosen.at_steps(StepRange(min(finding.onset.step, LARGEST), LARGEST))
    if finding.ranks.isascii() and finding.ranks.isdigit():
        chosen = chosen.at_rank(min(int(finding.ranks), LARGEST))
    return replace(chosen, view=View(view), host=host or chosen.host).search()


def _freshness(state: ViewState, reads: Reads) -> list[object]:
    return [*newest_of_log(reads, state.run), reads.now_ns() // (DAY_S * NS_PER_S)]


PAGE = Page(
    title="Findings log",
    skeleton=skeleton,
    regions={
        "log-controls": Region(draw=_draw_controls, live=False),
        "log-links": Region(draw=_draw_links, live=False, quiet=True),
        "log": Region(draw=_draw_log),
    },
    control_values=control_values,
    preload=page_of,
    freshness=_freshness,
    needs_run=False,
    needs_step=False,
)
