"""Events in charts: their legend, and where an event leads."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dash import html
from dash.development.base_component import Component

from telemetry.stages import STAGE_BY_LABEL
from ui.dashboard.data import Reads
from ui.dashboard.data.curves import Shown
from ui.dashboard.data.run_events import run_events
from ui.dashboard.events import EventKind, RunEvent
from ui.dashboard.figures.markers import SIGNS
from ui.dashboard.pages.controls import timeline_of
from ui.dashboard.view_state import StepRange, View, ViewState

MEANINGS = {
    EventKind.FINDING: "finding",
    EventKind.FLAP: "link lost",
    EventKind.RESTART: "restart or decision of the driver",
    EventKind.MARK: "mark",
}


def event_legend() -> Component:
    """The symbols of events and their colours."""
    signs = [
        html.Span([html.Span(SIGNS[kind], className=f"event-sign {kind}"), f" {text}"])
        for kind, text in MEANINGS.items()
    ]
    colours = html.Span(
        "Red: critical, orange: warning, blue: info. A number: number of events at this place. Click "
        "an event to open its step."
    )
    return html.Div([*signs, colours], className="event-signs")


def after_event(state: ViewState, shown: Shown, reads: Reads, point: Mapping[str, Any]) -> ViewState:
    """The view after a click on a chart: the step of an event. A click elsewhere changes nothing."""
    key = point.get("customdata")
    found = next((event for event in run_events(shown, reads) if event.key == key), None)
    if found is None:
        return state
    run = reads.newest(state)
    return event_view(found, replace(state, run=run.run_id, attempt=run.attempt))


def event_view(event: RunEvent, exactly: ViewState) -> ViewState:
    """The timeline of the step of an event, with its rank, stage and host. The chosen steps stay if they contain the
    step. ``exactly``: a view with its run and attempt."""
    chosen = exactly.at_run(event.run_id, event.attempt)
    if chosen.steps is None or not chosen.steps.first <= event.step <= chosen.steps.last:
        chosen = chosen.at_steps(StepRange.around(event.step))
    if stage := STAGE_BY_LABEL.get(event.stage):
        chosen = chosen.at_stage(stage)
    if event.host:
        chosen = replace(chosen, host=event.host)
    if event.rank is not None:
        return timeline_of(chosen, event.rank, event.step)
    return replace(chosen.at_step(event.step), view=View.TIMELINE)
