"""The frame around every page: the tabs of the views, the state of the run, and the colour scheme."""

from dataclasses import replace

import dash_mantine_components as dmc
from dash import dcc, html
from dash.development.base_component import Component

from diagnose.model.run_state import NotShipping, not_shipping
from telemetry.collector.settings import Live
from ui.dashboard.data import Reads
from ui.dashboard.figures.style import short
from ui.dashboard.pages import PAGES
from ui.dashboard.pages.panels import state_badge
from ui.dashboard.view_state import LARGEST, View, ViewState
from ui.dashboard.wording import capitalized

POLL_EVERY_MS: dict[Live, int] = {"interval": 2000, "websocket": 10_000}
"""How often a page polls for new data. With a socket, it polls in case the socket fails."""
OF_ALL_RUNS = {view: page.title for view, page in PAGES.items() if not page.needs_run}
OF_A_RUN = {view: page.title for view, page in PAGES.items() if page.needs_run}
TAB_TITLE = "tab-title"
THEME = {"primaryColor": "blue", "defaultRadius": "sm", "headings": {"fontWeight": "600"}}


def layout(live: Live) -> Component:
    """The page before any callback: the other parts are drawn into it."""
    toggle = dmc.ColorSchemeToggle(
        lightIcon=html.Span("☀", className="scheme-icon"),
        darkIcon=html.Span("☾", className="scheme-icon"),
        variant="default",
        size="lg",
        **{"aria-label": "switch between light and dark"},
    )
    header = html.Header(
        [
            dcc.Link([html.Span(className="logo"), "rankscope"], href="?view=runs", className="brand"),
            html.Div(id="way", className="way"),
            html.Div(id="views"),
            toggle,
        ],
        className="header",
    )
    return dmc.MantineProvider(
        [
            dcc.Location(id="url", refresh=False),
            dcc.Interval(id="clock", interval=POLL_EVERY_MS[live]),
            dcc.Store(id="here"),
            dcc.Store(id="goes-to"),
            dcc.Store(id="brushed"),
            dcc.Store(id="known"),
            dcc.Store(id="freshness"),
            html.A("Skip to content", href="#page", className="skip"),
            header,
            html.Div(id="connection", role="status"),
            html.Div(id="notes", role="status"),
            html.Main(id="page", tabIndex="-1"),
        ],
        theme=THEME,
        defaultColorScheme="auto",
    )


def draw_navigation(state: ViewState, reads: Reads) -> Component:
    """The name and state of the run, and tabs of its views."""
    if is_of_all_runs(state):
        of_all = {view: state if view is View.RUNS else state.at_run("") for view in OF_ALL_RUNS}
        tabs = [_tab(replace(of_all[view], view=view), state.view) for view in of_all]
        name = OF_ALL_RUNS[state.view]
        title = dmc.VisuallyHidden(html.H1(name))
        return html.Div([_tab_title(name), title, html.Nav(tabs, **{"aria-label": "views"})], className="way-inner")
    run = reads.newest(state)
    exactly = replace(state, run=run.run_id, attempt=run.attempt)
    views = [*(view for view in OF_A_RUN if view is not View.SQL or reads.has_sql), View.ALERTS, View.FINDINGS_LOG]
    tabs = [_tab(replace(exactly, view=view), state.view) for view in views]
    where = [
        dcc.Link("Runs", href=replace(exactly, view=View.RUNS).search()),
        html.Span("/", className="dim"),
        html.H1(run.run_id, className="run-name"),
    ]
    attempt = [html.Span(f"attempt {run.attempt}", className="dim")] if len(reads.attempts(run.run_id)) > 1 else []
    return html.Div(
        [
            _tab_title(run.run_id, PAGES[state.view].title),
            html.Div([*where, *attempt, state_badge(run.state)], className="where"),
            _selected(exactly),
            html.Nav(tabs, **{"aria-label": "views"}),
        ],
        className="way-inner",
    )


def is_of_all_runs(state: ViewState) -> bool:
    """Whether the page shows all runs. The selection of a run can still be part of its address."""
    return state.view is View.RUNS or (state.view in OF_ALL_RUNS and not state.run)


def _selected(state: ViewState) -> Component | None:
    """The choices that all pages of this run share, each with a link that clears it. None without a choice."""
    last = None if state.steps is None or state.steps.last == LARGEST else state.steps.last
    choices = {
        f"steps {state.steps and state.steps.first} to {'the newest' if last is None else last}": state.at_steps(None),
        f"step {state.step}": state.at_step(None),
        f"rank {state.rank}": state.at_rank(None),
        f"host {short(state.host)}": replace(state, host=""),
        f"pinned: {', '.join(map(str, state.pins))}": replace(state, pins=()),
    }
    chips = [_chip(text, without) for text, without in choices.items() if without != state]
    if not chips:
        return None
    every = [dcc.Link("Clear", href=state.clear().search(), title="clear the selection")] if len(chips) > 1 else []
    return html.Div(["Selected", *chips, *every], className="selected", role="group", **{"aria-label": "selection"})


def _chip(text: str, without: ViewState) -> Component:
    label = [html.Span("✕", **{"aria-hidden": "true"}), dmc.VisuallyHidden(f"clear {text}")]
    return html.Span([text, dcc.Link(label, href=without.search(), title=f"clear {text}")], className="selected-part")


def _tab_title(*parts: str) -> Component:
    """The title of the browser's tab: ``pretrain-13b · Heat map · rankscope``."""
    return dcc.Store(id=TAB_TITLE, data=" · ".join([*parts, "rankscope"]))


def draw_notes(notes: tuple[str, ...], silent: NotShipping | None = None) -> Component | None:
    """Invalid fields of the address, and a warning if the run of the page is not shipping."""
    alerts = []
    if notes:
        items = html.Ul([html.Li(note) for note in notes])
        alerts.append(dmc.Alert(items, color="yellow", variant="light", className="notes"))
    if silent:
        lines = [
            dmc.Text(capitalized(silent.sentence), fw=600, size="sm"),
            dmc.Text(f"Next: {silent.next_step}", size="sm"),
        ]
        alerts.append(dmc.Alert(lines, color="orange", variant="light", className="notes"))
    return html.Div(alerts) if alerts else None


def silence_of(state: ViewState, reads: Reads) -> NotShipping | None:
    """The warning for a run that is not shipping, as the command prints it. None on pages of all runs."""
    if is_of_all_runs(state):
        return None
    return not_shipping(reads.newest(state).heard)


def _tab(state: ViewState, current: View) -> Component:
    kind = "view-tab current" if state.view is current else "view-tab"
    return dcc.Link(PAGES[state.view].title, href=state.search(), className=kind)
