"""The frame around every page: name, links to the views, state of the run, light and dark."""

import dash_mantine_components as dmc
from dash import dcc, html
from dash.development.base_component import Component

from diagnose.model.run_state import NotShipping, not_shipping
from telemetry.collector.settings import Live
from ui.dashboard.data import Reads
from ui.dashboard.pages.run_cells import state_badge
from ui.dashboard.view_state import View, ViewState
from ui.dashboard.wording import capitalized

LOOK_EVERY_MS: dict[Live, int] = {"interval": 2000, "websocket": 10_000}
"""How often a page asks whether something has arrived. One that is told does it for when it is not."""
TABS = (
    (View.OVERVIEW, "Overview"),
    (View.HEAT_MAP, "Heat map"),
    (View.TIMELINE, "Timeline"),
    (View.GRID, "Grid"),
    (View.WHAT_IF, "What if"),
    (View.HANG, "Hang"),
    (View.FLEET, "Fleet"),
    (View.CLOCK, "Clock"),
)
OF_ALL = ((View.RUNS, "Runs"), (View.ALERTS, "Alerts"))
"""Views that are about no one run."""
THEME = {"primaryColor": "blue", "defaultRadius": "sm", "headings": {"fontWeight": "600"}}


def layout(live: Live) -> Component:
    """The page before anything is known: the rest is drawn into it."""
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
            toggle,
        ],
        className="header",
    )
    return dmc.MantineProvider(
        [
            dcc.Location(id="url", refresh=False),
            dcc.Interval(id="clock", interval=LOOK_EVERY_MS[live]),
            dcc.Store(id="here"),
            dcc.Store(id="goes-to"),
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


def draw_way(state: ViewState, reads: Reads) -> Component:
    """Which run this is, and its views."""
    if state.view is View.RUNS or (state.view is View.ALERTS and not state.run):
        name = dict(OF_ALL)[state.view]
        tabs = [_tab(ViewState(view=view), title, state.view) for view, title in OF_ALL]
        ways = html.Nav(tabs, **{"aria-label": "views"})
        return html.Div([dmc.VisuallyHidden(html.H1(name)), ways], className="way-inner")
    run = reads.newest(state)
    tabs = [_tab(ViewState(view=view, run=run.run_id, attempt=run.attempt), name, state.view) for view, name in TABS]
    tabs.append(_tab(ViewState(view=View.ALERTS, run=run.run_id), "Alerts", state.view))
    where = [
        dcc.Link("Runs", href="?view=runs"),
        html.Span("/", className="dim"),
        html.H1(run.run_id, className="run-name"),
    ]
    attempt = [html.Span(f"attempt {run.attempt}", className="dim")] if len(reads.attempts(run.run_id)) > 1 else []
    return html.Div(
        [
            html.Div([*where, *attempt, state_badge(run.state)], className="where"),
            html.Nav(tabs, **{"aria-label": "views"}),
        ],
        className="way-inner",
    )


def draw_notes(notes: tuple[str, ...], silent: NotShipping | None = None) -> Component | None:
    """What of the address was not understood, and that the run of the page ships nothing."""
    told = [_not_understood(notes)] if notes else []
    told += [_not_shipped(silent)] if silent else []
    return html.Div(told) if told else None


def _not_understood(notes: tuple[str, ...]) -> Component:
    return dmc.Alert(html.Ul([html.Li(note) for note in notes]), color="yellow", variant="light", className="notes")


def _not_shipped(silent: NotShipping) -> Component:
    lines = [
        dmc.Text(capitalized(silent.sentence), fw=600, size="sm"),
        dmc.Text(f"Next: {silent.next_step}", size="sm"),
    ]
    return dmc.Alert(lines, color="orange", variant="light", className="notes")


def silence_of(state: ViewState, reads: Reads) -> NotShipping | None:
    """What the command prints of a run that ships nothing. None on the pages of all runs."""
    if state.view in dict(OF_ALL) and not state.run:
        return None
    return not_shipping(reads.newest(state).heard)


def _tab(state: ViewState, name: str, current: View) -> Component:
    here = state.view is current
    return dcc.Link(name, href=state.search(), className="view-tab current" if here else "view-tab")
