"""The goodput page: where the wall time of a run went over all of its attempts, and what each incident cost."""

from collections.abc import Iterator, Sequence

import dash_mantine_components as dmc
import numpy as np
import plotly.graph_objects as go
from dash import dcc, html
from dash.development.base_component import Component

from diagnose.goodput.records import Incident, Ledger, TimeClass
from ui.dashboard.data import Reads
from ui.dashboard.data.goodput import ledger_of, ledger_version
from ui.dashboard.figures.time_classes import CLASS_COLOURS, HEIGHT_PX, MAX_BARS, wall_time
from ui.dashboard.pages.interface import Chart, Page, Region, region_id
from ui.dashboard.pages.panels import UNKNOWN, card, chart_panel, heading, loading, panel, table
from ui.dashboard.view_state import View, ViewState
from ui.dashboard.wording import NS_PER_S, count, duration, local_ms, long_duration, stamp

MAX_INCIDENTS = 100
"""Rows of the table: the newest ones."""
EXACT_S = 600
"""Longer durations are rounded to minutes."""
MEANINGS = {
    TimeClass.USEFUL: "steps completed for the first time, without checkpoint snapshots",
    TimeClass.REPEATED: "steps that an earlier attempt had completed, and the lost part of interrupted steps",
    TimeClass.CHECKPOINTING: "snapshots in steps, and the save at a planned stop",
    TimeClass.OUTSIDE_STEPS: "between steps and after the last one: evaluation, logging, an open step",
    TimeClass.DETECTING: "from the end of progress until the fault was detected",
    TimeClass.CHECKING: "node checks while no attempt ran",
    TimeClass.RESTARTING: "from the detection, or the start of ranks, to the end of the warm-up in the first step",
    TimeClass.WAITING: "too few nodes were ready",
    TimeClass.IDLE: "paused, or between two attempts that no driver started",
}


def skeleton() -> Component:
    title = heading("Wall time by class. Dotted lines: start of an attempt (grey), incident (red)")
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
    """None for a run without wall time."""
    ledger = _ledger(state, reads)
    if not ledger.wall_ns:
        return None
    begin_ms = local_ms(ledger.timeline.begin_ns)
    wall_ms = np.linspace(begin_ms, begin_ms + ledger.wall_ns / 1e6, MAX_BARS + 1)
    return wall_time(ledger, wall_ms=wall_ms, keep=ledger.run_id)


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
    rows = table(names, [tuple(_cells(incident, ledger)) for incident in newest], min_width_px=480)
    left_out = len(ledger.incidents) - len(newest)
    note = [dmc.Text(f"{count(left_out, 'older incident')} not listed", size="sm", c="dimmed")] if left_out else []
    return panel("Incidents, the newest first", dmc.Stack([rows, *note], gap="xs"))


def _cells(incident: Incident, ledger: Ledger) -> Iterator[object]:
    to = ViewState(view=View.OVERVIEW, run=ledger.run_id, attempt=incident.attempt)
    yield dcc.Link(f"attempt {incident.attempt}", href=to.search())
    yield f"{incident.cause} on {', '.join(incident.nodes)}" if incident.nodes else incident.cause
    yield stamp(incident.began_ns)
    for at_ns, unknown in ((incident.detected_ns, "not yet"), (incident.resumed_ns, "not yet")):
        yield unknown if at_ns is None else f"+{_seconds(at_ns - incident.began_ns)}"
    yield _seconds(incident.cost_ns)
    yield incident.reason


def _seconds(ns: int) -> str:
    """``40.00 s``, ``3 h 20 min``."""
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
    charts={"goodput-time": Chart(draw=_draw_time)},
    preload=_ledger,
    freshness=_freshness,
    needs_step=False,
)
