"""The heat map page: which rank is slow, in which stage, since when. Hosts as boxes, then rank by step."""

from dataclasses import replace

import dash_mantine_components as dmc
import numpy as np
import plotly.graph_objects as go
from dash import html
from dash.development.base_component import Component

from diagnose.model.collectives import group_axis
from telemetry.stages import Stage, StageClass
from ui.dashboard.data import Reads
from ui.dashboard.data.heat_map import pooled_times, stage_times
from ui.dashboard.defaults import NEWEST_STEPS, chosen_stage, chosen_steps, suspects
from ui.dashboard.figures.heat_map import pooling_in_words, rank_by_step
from ui.dashboard.figures.host_boxes import host_boxes, over_steps
from ui.dashboard.pages.controls import bar, link_button, switch, titled, window_inputs, window_links, window_values
from ui.dashboard.pages.heat_map.summary import heat_in_words
from ui.dashboard.pages.interface import Chart, Page, Region, control_id, region_id
from ui.dashboard.pages.panels import chart_panel, heading, loading, notice
from ui.dashboard.records import PooledTimes, RunFacts, StageTimes
from ui.dashboard.stage_times import PROCESSOR, WALL
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
}
NOT_OWN_NOTE = "Compute time is not known for all of these steps. Wall time is shown: a rank that waits looks slow too."
WAIT_NOTE = (
    "Median time that the other ranks of the group waited for this rank. All ranks leave a collective together, so "
    "the last to arrive spends the shortest time in it. The cause can be an earlier pipeline stage: see the grid."
)

NO_WAIT_NOTE = (
    "Either {stage} is not a collective, or its groups lie along different axes of the mesh. Choose another stage, "
    "or colour by ratio."
)
GATHERS_NOTE = (
    " Gathers during compute are not counted: a rank computes while a prefetched gather runs. Compute time of "
    "forward-compute shows the slow rank."
)


def skeleton() -> Component:
    hosts = html.Div(id=region_id("hosts-title"))
    cells = html.Div(loading(20), id=region_id("cells-title"))
    return dmc.Stack(
        [
            html.Section(
                [
                    html.Div(loading(60), id=region_id("heat-controls")),
                    html.Div(id=region_id("heat-links"), className="links"),
                ],
                className="panel controls",
            ),
            html.Div(loading(46), id=region_id("heat-says")),
            chart_panel("hosts", hosts, label="hosts as boxes; each rank coloured by its median", height_px=110),
            chart_panel("cells", cells, label="rank by step, coloured", height_px=300),
        ],
        gap="md",
    )


def control_values(state: ViewState, reads: Reads) -> dict[str, object]:
    """Stage, metric, clock and steps of a view; only compute has own work."""
    stage = chosen_stage(state, reads.facts(state)) if state.metric is Metric.WAIT else state.stage
    return {
        "stage": stage.label,
        "metric": state.metric.value,
        "clock": state.clock.value if stage.stage_class is StageClass.COMPUTE else Clock.WALL.value,
        **window_values(state),
    }


def draw_controls(state: ViewState, reads: Reads) -> Component:
    """Stage, value, clock and steps."""
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


def draw_links(state: ViewState, reads: Reads) -> Component:
    """Ranges of steps that are wanted often, and the same times in the grid."""
    grid = link_button("Show in grid", replace(state, view=View.GRID, colour=Colour.METRIC))
    return html.Div([*window_links(state, NEWEST_STEPS), grid], className="links")


def draw_says(state: ViewState, reads: Reads) -> Component:
    """The pictures in a sentence, and what time is counted."""
    facts, times = _times(state, reads)
    if not np.isfinite(times.ns).any():
        return notice("No data", f"No rank recorded {times.stage.label} in these steps.")
    if not has_values(times, state.metric):
        note = NO_WAIT_NOTE.format(stage=times.stage.label)
        more = GATHERS_NOTE if times.stage is Stage.PARAMS_ALL_GATHER else ""
        return notice("No waiting time for this stage", note + more)
    return html.Div(
        [
            dmc.Text(heat_in_words(times, facts, state.metric), fw=600, className="says"),
            dmc.Text(WAIT_NOTE if state.metric is Metric.WAIT else _basis_note(times, state), size="sm", c="dimmed"),
        ],
        role="status",
    )


def draw_hosts_title(state: ViewState, reads: Reads) -> Component:
    """Which steps the medians are of."""
    facts, times = _times(state, reads)
    run, steps = facts.summary, chosen_steps(state, facts)
    exactly = replace(state, run=run.run_id, attempt=run.attempt, steps=steps)
    return titled(f"Hosts: {over_steps(times)} of steps {steps.first} to {steps.last}", exactly)


def draw_cells_title(state: ViewState, reads: Reads) -> Component:
    """What a cell is, where it stands for several steps or ranks too."""
    pooled = pooling_in_words(_cells(state, reads))
    note = [dmc.Text(pooled, size="sm", className="left-out")] if pooled else []
    return html.Div([heading("Rank by step. Click a cell to open that step"), *note])


def draw_hosts(state: ViewState, reads: Reads) -> go.Figure | None:
    """Hosts as boxes with their ranks inside."""
    facts, times = _times(state, reads)
    if not has_values(times, state.metric):
        return None
    marked = suspects(reads.reports.of(facts.summary))
    return host_boxes(times, state.metric, facts.hosts, facts.local_ranks, marked, keep=_keep(state, facts))


def draw_cells(state: ViewState, reads: Reads) -> go.Figure | None:
    """Rank by step."""
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
    """Whether there is something to colour; where nobody meets, no rank is waited for."""
    if metric is Metric.WAIT and (group_axis(times.stage) is None or not np.isfinite(times.ratio).any()):
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
    return [{"group": name, "items": [{"value": one, "label": one} for one in groups[name]]} for name in order]


def _basis_note(times: StageTimes, state: ViewState) -> str:
    if state.clock is Clock.OWN and times.basis == WALL and times.stage.stage_class is StageClass.COMPUTE:
        return NOT_OWN_NOTE
    return BASIS_NOTES.get(times.basis, f"{times.basis.capitalize()}: it excludes waiting inside collectives.")


def ask_ahead(state: ViewState, reads: Reads) -> None:
    """The cells, then what is outlined in them."""
    _cells(state, reads)
    reads.reports.of(reads.facts(state).summary)


PAGE = Page(
    skeleton=skeleton,
    regions={
        "heat-controls": Region(draw=draw_controls, live=False),
        "heat-links": Region(draw=draw_links, live=False, quiet=True),
        "heat-says": Region(draw=draw_says),
        "hosts-title": Region(draw=draw_hosts_title, quiet=True),
        "cells-title": Region(draw=draw_cells_title, quiet=True),
    },
    charts={"hosts": Chart(draw=draw_hosts), "cells": Chart(draw=draw_cells)},
    control_values=control_values,
    ahead=ask_ahead,
)
