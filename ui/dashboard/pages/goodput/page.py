"""The goodput page: how a run used its wall time over all of its attempts, and what each incident cost."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import dash_mantine_components as dmc
import plotly.graph_objects as go
from dash import dcc, html
from dash.development.base_component import Component

from diagnose.goodput.records import Incident, Ledger, TimeClass
from ui.dashboard.chart_view import Axis, ChartView
from ui.dashboard.data import Reads
from ui.dashboard.data.curves import Shown, shown_of
from ui.dashboard.data.goodput import ledger_of, ledger_version
from ui.dashboard.data.run_events import run_events
from ui.dashboard.figures.time_classes import CLASS_COLOURS, HEIGHT_PX, wall_time
from ui.dashboard.pages.event_views import after_event, event_legend
from ui.dashboard.pages.interface import Chart, Page, Region, region_id
from ui.dashboard.pages.panels import UNKNOWN, card, chart_panel, heading, loading, panel, table
from ui.dashboard.view_state import StepRange, View, ViewState
from ui.dashboard.wording import NS_PER_S, count, duration, long_duration, stamp

MAX_INCIDENTS = 100
"""Largest number of rows of the table: the newest incidents."""
EXACT_S = 600
"""Longer durations are rounded to minutes."""
MEANINGS = {
    TimeClass.USEFUL: "steps completed for the first time, without checkpoint snapshots",
    TimeClass.REPEATED: "steps that an earlier attempt had completed, and the lost part of interrupted steps",
    TimeClass.CHECKPOINTING: "snapshots in steps, and the save at a planned stop",
    TimeClass.OUTSIDE_STEPS: "between steps and after the last one: evaluation, logging, a step that has not ended",
    TimeClass.DETECTING: "from the end of progress until the fault was detected",
    TimeClass.CHECKING: "node checks while no attempt ran",
    TimeClass.RESTARTING: "from the detection, or the start of ranks, to the end of the warm-up in the first step",
    TimeClass.WAITING: "too few nodes were ready",
    TimeClass.IDLE: "paused, or between two attempts that no driver started",
}


def skeleton() -> Component:
    title = html.Div(
        [heading("Wall time by class. Dotted lines: start of an attempt (grey), incident (red)"), event_legend()]
    )
    return dmc.Stack(
        [
            html.Div(loading(90), id=region_id("goodput-numbers")),
            chart_panel("goodput-time", title, label="share of each class over wall time", height_px=HEIGHT_PX),
            html.Div(loading(120), id=region_id("goodput-incidents")),
            html.Div(loading(240), id=region_id("goodput-classes")),
            html.Div(id=region_id("goodput-unknown")),
        ],
        gap="md",
    )


def _ledger(state: ViewState, reads: Reads) -> Ledger:
    return ledger_of(reads.newest(state).run_id, reads)


def _draw_numbers(state: ViewState, reads: Reads) -> Component:
    ledger = _ledger(state, reads)
    goodput = UNKNOWN if ledger.goodput is None else f"{ledger.goodput:.1%}"
    lost_ns = sum(incident.cost_ns for incident in ledger.incidents)
    cards = [
        card("Goodput", goodput, "useful time / wall time"),
        card("Wall time", _seconds(ledger.wall_ns), f"since {stamp(ledger.timeline.begin_ns)}"),
        card("Attempts", f"{len(ledger.attempts)}", f"{count(ledger.num_steps, 'completed step')}"),
        card("Incidents", f"{len(ledger.incidents)}", f"cost {_seconds(lost_ns)} together"),
    ]
    return dmc.SimpleGrid(cards, cols={"base": 2, "sm": 4}, spacing="sm")


def _draw_time(state: ViewState, reads: Reads) -> go.Figure | None:
    """The figure of wall time by class. None for a run without wall time."""
    ledger = _ledger(state, reads)
    if not ledger.wall_ns:
        return None
    shown = _shown(state, reads)
    return wall_time(ledger, run_events(shown, reads) if shown else (), keep=ledger.run_id)


def _shown(state: ViewState, reads: Reads) -> Shown | None:
    """All attempts of the run. None if the attempt of the view has no step."""
    if not len(reads.facts(state).steps.step):
        return None
    return shown_of(replace(state, charts=ChartView(axis=Axis.TIME)), reads)


def _after_click(state: ViewState, reads: Reads, point: Mapping[str, Any]) -> ViewState:
    shown = _shown(state, reads)
    return after_event(state, shown, reads, point) if shown else state


def _draw_classes(state: ViewState, reads: Reads) -> Component:
    ledger = _ledger(state, reads)
    rows = [
        (_named(name), _seconds(ns), _share(ns, ledger), text)
        for name, text in MEANINGS.items()
        for ns in [ledger.classes_ns[name]]
    ]
    return panel("Time by class", table(("Class", "Time", "Share", "What it is"), rows, min_width_px=420))


def _named(name: TimeClass) -> Component:
    return html.Span([html.Span(className="sign", style={"background": CLASS_COLOURS[name]}), f" {name}"])


def _share(ns: int, ledger: Ledger) -> str:
    return f"{ns / ledger.wall_ns:.1%}" if ledger.wall_ns else UNKNOWN


def _draw_incidents(state: ViewState, reads: Reads) -> Component:
    ledger = _ledger(state, reads)
    if not ledger.incidents:
        return panel("Incidents", dmc.Text("No fault ended an attempt.", size="sm", c="dimmed"))
    newest = ledger.incidents[: -MAX_INCIDENTS - 1 : -1]
    names = ("Attempt", "Cause", "Began", "Detected", "Resumed", "Cost", "Reason")
    last_steps = reads.last_steps(ledger.run_id)
    exactly = replace(state, run=ledger.run_id, attempt=reads.newest(state).attempt)
    cells = [tuple(_cells(incident, _address(incident, last_steps, exactly))) for incident in newest]
    rows = table(names, cells, min_width_px=480)
    left_out = len(ledger.incidents) - len(newest)
    note = [dmc.Text(f"{count(left_out, 'older incident')} not listed", size="sm", c="dimmed")] if left_out else []
    return panel("Incidents, the newest first", dmc.Stack([rows, *note], gap="xs"))


def _address(incident: Incident, last_steps: Mapping[int, int], exactly: ViewState) -> str:
    """The overview of the attempt that the incident ended, with its last steps. ``exactly``: a view with its run and
    attempt."""
    chosen = exactly.at_run(exactly.run, incident.attempt)
    if incident.attempt in last_steps:
        chosen = chosen.at_steps(StepRange.around(last_steps[incident.attempt]))
    return replace(chosen, view=View.OVERVIEW).search()


def _cells(incident: Incident, address: str) -> Iterator[object]:
    yield dcc.Link(f"attempt {incident.attempt}", href=address)
    yield f"{incident.cause} on {', '.join(incident.nodes)}" if incident.nodes else incident.cause
    yield stamp(incident.began_ns)
    for at_ns, unknown in ((incident.detected_ns, "not yet"), (incident.resumed_ns, "not yet")):
        yield unknown if at_ns is None else f"+{_seconds(at_ns - incident.began_ns)}"
    yield _seconds(incident.cost_ns)
    yield incident.reason


def _seconds(ns: int) -> str:
    """A duration as text, such as ``40.00 s`` or ``3 h 20 min``."""
    if ns >= EXACT_S * NS_PER_S:
        return long_duration(ns / NS_PER_S)
    return duration(ns) if ns else "0 s"


def _draw_unknown(state: ViewState, reads: Reads) -> Component | None:
    sentences = _ledger(state, reads).unknown
    return panel("Not known", html.Ul([html.Li(text) for text in sentences])) if sentences else None


def _freshness(state: ViewState, reads: Reads) -> Sequence[object]:
    return ledger_version(reads.newest(state).run_id, reads)


PAGE = Page(
    title="Goodput",
    skeleton=skeleton,
    regions={
        "goodput-numbers": Region(draw=_draw_numbers),
        "goodput-classes": Region(draw=_draw_classes, quiet=True),
        "goodput-incidents": Region(draw=_draw_incidents, quiet=True),
        "goodput-unknown": Region(draw=_draw_unknown, quiet=True),
    },
    charts={"goodput-time": Chart(draw=_draw_time, after_click=_after_click)},
    preload=_ledger,
    freshness=_freshness,
    needs_step=False,
)
