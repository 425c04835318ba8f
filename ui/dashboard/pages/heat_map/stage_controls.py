"""The controls of the time of a stage, on the heat map and on the grid. They show what is drawn."""

import dash_mantine_components as dmc
from dash.development.base_component import Component

from telemetry.errors import RankscopeError
from telemetry.stages import Stage, StageClass
from ui.dashboard.data import Reads
from ui.dashboard.data.cache import StillWorking
from ui.dashboard.data.stage_times import WALL
from ui.dashboard.defaults import NEWEST_STEPS
from ui.dashboard.pages.controls import switch, window_inputs, window_values
from ui.dashboard.pages.heat_map.picture import drawn_stage, times_of
from ui.dashboard.pages.interface import control_id
from ui.dashboard.records import RunFacts
from ui.dashboard.view_state import Clock, Metric, ViewState
from ui.dashboard.wording import class_name

METRICS = {
    Metric.RATIO.value: "Ratio to peers",
    Metric.MILLISECONDS.value: "Milliseconds",
    Metric.SHARE.value: "Share of step",
    Metric.WAIT.value: "Wait caused",
    Metric.EXPOSED.value: "Exposed",
}
CLOCKS = {Clock.OWN.value: "Compute time", Clock.WALL.value: "Wall time"}


def stage_values(state: ViewState, reads: Reads) -> dict[str, object]:
    """The values of the controls. The stage and the kind of time are those that are drawn."""
    needs_other = state.metric in (Metric.WAIT, Metric.EXPOSED)
    stage = drawn_stage(state, reads) if needs_other else state.stage
    return {
        "stage": stage.label,
        "metric": state.metric.value,
        "clock": _drawn_clock(state, reads).value,
        **window_values(state),
    }


def stage_controls(state: ViewState, reads: Reads) -> list[Component]:
    """Stage, metric, kind of time and steps. Compute time cannot be chosen if it is not known."""
    shown = stage_values(state, reads)
    is_unknown = state.clock is Clock.OWN and shown["clock"] == Clock.WALL
    return [
        dmc.Select(
            label="Stage",
            id=control_id("stage"),
            value=shown["stage"],
            data=_stages(reads.facts(state)),
            allowDeselect=False,
            searchable=True,
            w=200,
        ),
        switch("Colour shows", "metric", shown["metric"], METRICS),
        switch("Time", "clock", shown["clock"], CLOCKS, disabled=[Clock.OWN] if is_unknown else []),
        *window_inputs(shown, NEWEST_STEPS),
    ]


def _drawn_clock(state: ViewState, reads: Reads) -> Clock:
    """The kind of time that is drawn. If compute time is not known, wall time is drawn instead."""
    try:
        return Clock.WALL if times_of(state, reads)[1].basis == WALL else Clock.OWN
    except (RankscopeError, StillWorking):  # another part of the page shows the error
        return state.clock


def _stages(facts: RunFacts) -> list[dict[str, object]]:
    groups: dict[str, list[str]] = {}
    for stage in facts.stages or tuple(Stage):
        groups.setdefault(class_name(stage.stage_class), []).append(stage.label)
    order = [name for name in map(class_name, StageClass) if name in groups]
    return [{"group": name, "items": [{"value": label, "label": label} for label in groups[name]]} for name in order]
