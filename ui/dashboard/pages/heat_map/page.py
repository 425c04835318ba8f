"""The heat map page: which rank is slow, in which stage, since when. Hosts as boxes, then rank by step."""

from dataclasses import replace

import dash_mantine_components as dmc
import numpy as np
import plotly.graph_objects as go
from dash import html
from dash.development.base_component import Component

from diagnose.model.collectives import GROUP_STAGES
from diagnose.model.exposed import AXIS_OF_STREAM
from telemetry.stages import Stage, StageClass
from ui.dashboard.data import Reads
from ui.dashboard.data.stage_times import PROCESSOR, WALL, pooled_times, stage_times
from ui.dashboard.defaults import NEWEST_STEPS, chosen_stage, chosen_steps, suspects
from ui.dashboard.figures.heat_map import pooling_note, rank_by_step
from ui.dashboard.figures.host_boxes import host_boxes, over_steps
from ui.dashboard.pages.controls import bar, link_button, switch, titled, window_inputs, window_links, window_values
from ui.dashboard.pages.heat_map.summary import heat_map_summary
from ui.dashboard.pages.interface import Chart, Page, Region, control_id, region_id
from ui.dashboard.pages.panels import chart_panel, controls_panel, heading, loading, notice
from ui.dashboard.records import PooledTimes, RunFacts, StageTimes
from ui.dashboard.view_state import Clock, Colour, Metric, View, ViewState
from ui.dashboard.wording import class_name

BASIS_NOTES = {
    PROCESSOR: "Processor time of the rank's own thread. It excludes waiting for other ranks.",
    WALL: "Wall time: a rank that waits for a slow rank looks slow too.",
}
METRICS = {
    Metric.RATIO.value: "Ratio to peers",
    Metric.MILLISECONDS.value: "Milliseconds",
    Metric.SHARE.value: "Share of step",
    Metric.WAIT.value: "Wait caused",
    Metric.EXPOSED.value: "Exposed",
}
NOT_OWN_NOTE = "Compute time is not known for all of these steps. Wall time is shown: a rank that waits looks slow too."
WAIT_NOTE = (
    "Median time that the other ranks of the group waited for this rank. All ranks leave a collective together, so "
    "the last to arrive spends the shortest time in it. The cause can be an earlier pipeline stage: see the grid."
)

EXPOSED_NOTE = (
    "Exposed communication: the time in which a rank communicates along {axis} and does not compute. All stages of "
    "this axis together, as in rankscope diagnose."
)
NO_EXPOSED_NOTE = (
    "Exposed communication needs compute spans, and collectives or transfers of the chosen stage. It is not computed "
    "for more than {most:,} operations: choose fewer steps."
)
NO_WAIT_NOTE = (
    "This colour needs a collective that several ranks of a group recorded, and whose groups all lie along the same "
    "axes of the mesh. {stage} is not such a stage in these steps. Choose another stage, or colour by ratio to peers."
)
GATHERS_NOTE = (
    " Gathers that run during compute are not counted. To find the slow rank, show the compute time of forward-compute."
)


def skeleton() -> Component:
    hosts = html.Div(id=region_id("hosts-title"))
    cells = html.Div(loading(20), id=region_id("cells-title"))
    return dmc.Stack(
        [
            controls_panel("heat"),
            html.Div(loading(46), id=region_id("heat-says")),
            chart_panel("hosts", hosts, label="hosts as boxes; each rank coloured by its median", height_px=110),
            chart_panel("cells", cells, label="rank by step, coloured", height_px=300),
        ],
        gap="md",
    )


def control_values(state: ViewState, reads: Reads) -> dict[str, object]:
    """Only compute stages have compute time: others show wall time."""
    needs_other = state.metric in (Metric.WAIT, Metric.EXPOSED)
    stage = chosen_stage(state, reads.facts(state)) if needs_other else state.stage
    return {
        "stage": stage.label,
        "metric": state.metric.value,
        "clock": state.clock.value if stage.stage_class is StageClass.COMPUTE else Clock.WALL.value,
        **window_values(state),
    }


def draw_controls(state: ViewState, reads: Reads) -> Component:
    """Stage, metric, clock and steps."""
    shown = control_values(state, reads)
    return bar(
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
        switch("Time", "clock", shown["clock"], {"own": "Compute time", "wall": "Wall time"}),
        *window_inputs(shown, NEWEST_STEPS),
    )


def _draw_links(state: ViewState, reads: Reads) -> Component:
    grid = link_button("Show in grid", replace(state, view=View.GRID, colour=Colour.METRIC))
    return html.Div([*window_links(state, NEWEST_STEPS), grid], className="links")


def draw_says(state: ViewState, reads: Reads) -> Component:
    """A summary of the picture, and the kind of time."""
    facts, times = _times(state, reads)
    if state.metric is Metric.EXPOSED and not has_values(times, state.metric):
        return notice("Exposed communication is not known", NO_EXPOSED_NOTE.format(most=reads.max_own_operations))
    if not np.isfinite(times.ns).any():
        return notice("No data", f"No rank recorded {times.stage.label} in these steps.")
    if not has_values(times, state.metric):
        note = NO_WAIT_NOTE.format(stage=times.stage.label)
        more = GATHERS_NOTE if times.stage is Stage.PARAMS_ALL_GATHER else ""
        return notice("No waiting time for this stage", note + more)
    return html.Div(
        [
            dmc.Text(heat_map_summary(times, facts, state.metric), fw=600, className="says"),
            dmc.Text(_note(times, state), size="sm", c="dimmed"),
        ],
        role="status",
    )


def _draw_hosts_title(state: ViewState, reads: Reads) -> Component:
    facts, times = _times(state, reads)
    run, steps = facts.summary, chosen_steps(state, facts)
    exactly = replace(state, run=run.run_id, attempt=run.attempt, steps=steps)
    return titled(f"Hosts: {over_steps(times)} of steps {steps.first} to {steps.last}", exactly)


def _draw_cells_title(state: ViewState, reads: Reads) -> Component:
    pooled = pooling_note(_cells(state, reads))
    note = [dmc.Text(pooled, size="sm", className="left-out")] if pooled else []
    return html.Div([heading("Rank by step. Click a cell to open that step"), *note])


def _draw_hosts(state: ViewState, reads: Reads) -> go.Figure | None:
    facts, times = _times(state, reads)
    if not has_values(times, state.metric):
        return None
    marked = suspects(reads.reports.of(facts.summary))
    return host_boxes(times, state.metric, facts.hosts, facts.local_ranks, marked, keep=_keep(state, facts))


def _draw_cells(state: ViewState, reads: Reads) -> go.Figure | None:
    facts, times = _times(state, reads)
    if not has_values(times, state.metric):
        return None
    marked = suspects(reads.reports.of(facts.summary))
    return rank_by_step(_cells(state, reads), state.metric, facts.hosts, marked, keep=_keep(state, facts))


def _times(state: ViewState, reads: Reads) -> tuple[RunFacts, StageTimes]:
    facts = reads.facts(state)
    stage, steps = chosen_stage(state, facts), chosen_steps(state, facts)
    return facts, stage_times(reads, facts, stage, state.clock, steps, state.metric)


def has_values(times: StageTimes, metric: Metric) -> bool:
    """Whether there is a value to colour. A stage that is not a collective has no waiting time."""
    if metric is Metric.WAIT and (times.stage not in GROUP_STAGES or not np.isfinite(times.ratio).any()):
        return False
    return bool(np.isfinite(times.ns).any())


def _cells(state: ViewState, reads: Reads) -> PooledTimes:
    facts, times = _times(state, reads)
    return pooled_times(reads, facts, times, state.metric, chosen_steps(state, facts))


def _keep(state: ViewState, facts: RunFacts) -> str:
    return f"{facts.summary.run_id}/{facts.summary.attempt}/{state.steps}/{state.stage.label}"


def _stages(facts: RunFacts) -> list[dict[str, object]]:
    groups: dict[str, list[str]] = {}
    for stage in facts.stages or tuple(Stage):
        groups.setdefault(class_name(stage.stage_class), []).append(stage.label)
    order = [name for name in map(class_name, StageClass) if name in groups]
    return [{"group": name, "items": [{"value": label, "label": label} for label in groups[name]]} for name in order]


def _note(times: StageTimes, state: ViewState) -> str:
    match state.metric:
        case Metric.WAIT:
            return WAIT_NOTE
        case Metric.EXPOSED:
            return EXPOSED_NOTE.format(axis=AXIS_OF_STREAM[times.stage.stream])
        case _:
            return _basis_note(times, state)


def _basis_note(times: StageTimes, state: ViewState) -> str:
    if state.clock is Clock.OWN and times.basis == WALL and times.stage.stage_class is StageClass.COMPUTE:
        return NOT_OWN_NOTE
    return BASIS_NOTES.get(times.basis, f"{times.basis.capitalize()}: it excludes waiting inside collectives.")


def ask_ahead(state: ViewState, reads: Reads) -> None:
    _cells(state, reads)
    reads.reports.of(reads.facts(state).summary)


PAGE = Page(
    title="Heat map",
    skeleton=skeleton,
    regions={
        "heat-controls": Region(draw=draw_controls, live=False),
        "heat-links": Region(draw=_draw_links, live=False, quiet=True),
        "heat-says": Region(draw=draw_says),
        "hosts-title": Region(draw=_draw_hosts_title, quiet=True),
        "cells-title": Region(draw=_draw_cells_title, quiet=True),
    },
    charts={"hosts": Chart(draw=_draw_hosts), "cells": Chart(draw=_draw_cells)},
    control_values=control_values,
    preload=ask_ahead,
    freshness=lambda state, reads: reads.report_freshness(state),
)
