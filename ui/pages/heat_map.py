"""The heat map: which rank is slow, in which stage, since when. Hosts as boxes, then rank by step."""

from dataclasses import replace

import dash_mantine_components as dmc
import numpy as np
from dash import html
from dash.development.base_component import Component

from telemetry.stages import Stage, StageClass
from ui.defaults import chosen_steps, suspects
from ui.figures.heat_map import rank_by_step
from ui.figures.host_boxes import host_boxes
from ui.pages.controls import bar, labelled, link_button, step_input
from ui.pages.graphs import graph
from ui.pages.interface import Page, Region, control_id, region_id
from ui.pages.states import loading
from ui.reads import PROCESSOR, WALL, Reads
from ui.records import RunFacts, StageTimes
from ui.view_state import LARGEST, Clock, Metric, StepRange, ViewState

CLASS_NAMES = {
    StageClass.COMPUTE: "compute",
    StageClass.COMMUNICATION: "communication",
    StageClass.HOST: "host",
    StageClass.CHECKPOINT: "checkpoint",
}
BASIS_NOTES = {
    PROCESSOR: "Processor time of the rank's own thread: waiting for others is left out.",
    WALL: "Wall time: a rank that waits for a slow one looks slow too.",
}


def skeleton() -> Component:
    return dmc.Stack(
        [
            dmc.Paper(html.Div(loading(56), id=region_id("heat-controls")), withBorder=True, p="sm"),
            html.Div(loading(600), id=region_id("heat-figures")),
        ],
        gap="md",
    )


def draw_controls(state: ViewState, reads: Reads) -> Component:
    """Stage, value, clock and steps."""
    facts = reads.facts(state)
    metrics = [
        {"value": Metric.RATIO, "label": "Ratio to peers"},
        {"value": Metric.MILLISECONDS, "label": "Milliseconds"},
    ]
    clocks = [{"value": Clock.OWN, "label": "Own work"}, {"value": Clock.WALL, "label": "Wall time"}]
    shown: dict[str, object] = {"stage": state.stage.label, "metric": state.metric, "clock": state.clock}
    shown |= {"first": state.steps.first if state.steps else ""}
    shown |= {"last": state.steps.last if state.steps and state.steps.last != LARGEST else ""}
    return bar(
        dmc.Select(
            label="Stage",
            id=control_id("stage"),
            value=state.stage.label,
            data=_stages(facts),
            allowDeselect=False,
            searchable=True,
            w=230,
        ),
        labelled("Colour shows", dmc.SegmentedControl(id=control_id("metric"), value=state.metric, data=metrics)),
        labelled("Time counted", dmc.SegmentedControl(id=control_id("clock"), value=state.clock, data=clocks)),
        step_input("From step", "first", shown["first"], "newest 100", facts),
        step_input("To step", "last", shown["last"], "newest", facts),
        link_button("Newest 100", replace(state, steps=None)),
        link_button("All steps", replace(state, steps=StepRange(0, LARGEST))),
        shown=shown,
    )


def draw_figures(state: ViewState, reads: Reads) -> Component:
    """Both pictures, what they say in a sentence, and what the time is."""
    facts = reads.facts(state)
    steps = chosen_steps(state, facts)
    times = reads.stage_times(facts, state.stage, state.clock, steps)
    if not np.isfinite(times.ns).any():
        return dmc.Alert(
            f"No rank recorded {state.stage.label} in steps {steps.first} to {steps.last}.",
            title="Nothing to show",
            color="gray",
        )
    marked = suspects(reads.report(facts.summary))
    keep = f"{facts.summary.run_id}/{facts.summary.attempt}/{state.steps}/{state.stage.label}"
    says = summary(times, facts)
    boxes = host_boxes(times, state.metric, facts.hosts, facts.local_ranks, marked, keep=keep)
    cells = rank_by_step(times, state.metric, facts.hosts, marked, keep=keep)
    return dmc.Stack(
        [
            html.Div(
                [dmc.Text(says, fw=600, className="says"), dmc.Text(_basis_note(times), size="sm", c="dimmed")],
                role="status",
            ),
            _panel(f"Hosts: median of steps {steps.first} to {steps.last}", graph("hosts", boxes, label=says)),
            _panel("Rank by step: click a cell to see that step", graph("cells", cells, label=says)),
        ],
        gap="md",
    )


def summary(times: StageTimes, facts: RunFacts) -> str:
    """The picture in words: the rank that stands out most, and where the others lie."""
    known = np.isfinite(times.ratio).any(axis=0)
    if not known.any():
        return f"{times.stage.label}: no rank has peers to compare with"
    median = np.full(times.ratio.shape[1], np.nan)
    median[known] = np.nanmedian(times.ratio[:, known], axis=0)
    highest = int(np.nanargmax(median))
    others = np.delete(median, highest)
    rest = f"; the others {np.nanmin(others):.2f}x to {np.nanmax(others):.2f}x" if np.isfinite(others).any() else ""
    return f"{times.stage.label}: highest is {facts.describe(highest)}, {median[highest]:.2f}x its peers{rest}"


def _stages(facts: RunFacts) -> list[dict[str, object]]:
    groups: dict[str, list[str]] = {}
    for stage in facts.stages or tuple(Stage):
        groups.setdefault(CLASS_NAMES[stage.stage_class], []).append(stage.label)
    order = [name for name in CLASS_NAMES.values() if name in groups]
    return [{"group": name, "items": [{"value": one, "label": one} for one in groups[name]]} for name in order]


def _basis_note(times: StageTimes) -> str:
    return BASIS_NOTES.get(times.basis, f"{times.basis.capitalize()}: waiting inside collectives is left out.")


def _panel(title: str, body: Component) -> Component:
    return dmc.Paper([dmc.Title(title, order=2, className="panel-title"), body], withBorder=True, p="md")


PAGE = Page(
    title="Heat map",
    skeleton=skeleton,
    regions={
        "heat-controls": Region(draw=draw_controls, live=False),
        "heat-figures": Region(draw=draw_figures),
    },
)
