"""The heat map page: which rank is slow, in which stage, since when. Hosts as boxes, then rank by step."""

import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import groupby
from typing import Any

import dash_mantine_components as dmc
import plotly.graph_objects as go
from dash import dcc, html
from dash.development.base_component import Component

from diagnose.ranges import name_some
from telemetry.stages import StageClass
from ui.dashboard.data import Reads
from ui.dashboard.data.curves import Shown, shown_steps
from ui.dashboard.data.run_events import run_events
from ui.dashboard.defaults import NEWEST_STEPS, chosen_steps
from ui.dashboard.figures.distribution import distribution
from ui.dashboard.figures.heat_map import pooling_note, rank_by_step
from ui.dashboard.figures.host_boxes import host_boxes, lay_out, over_steps
from ui.dashboard.pages.controls import (
    after_brush,
    after_click,
    bar,
    link_button,
    number_input,
    switch,
    text_input,
    titled,
    window_links,
)
from ui.dashboard.pages.event_views import after_event, event_legend
from ui.dashboard.pages.heat_map.histogram import histogram
from ui.dashboard.pages.heat_map.picture import Picture, allowed_ranks, picture_of, times_of
from ui.dashboard.pages.heat_map.says import draw_says
from ui.dashboard.pages.heat_map.scale import colour_scale
from ui.dashboard.pages.heat_map.stage_controls import METRICS, stage_controls, stage_values
from ui.dashboard.pages.interface import Chart, Page, Region, region_id
from ui.dashboard.pages.panels import chart_panel, controls_panel, heading, loading, panel
from ui.dashboard.records import RunFacts
from ui.dashboard.view_state import Colour, Metric, RowOrder, View, ViewState
from ui.dashboard.wording import count

ORDERS = {RowOrder.RANK.value: "By rank", RowOrder.VALUE.value: "Highest first"}


def skeleton() -> Component:
    hosts = html.Div(id=region_id("hosts-title"))
    cells = html.Div(
        [html.Div(loading(20), id=region_id("cells-title")), html.Div(id=region_id("cells-controls"))],
        className="cells-head",
    )
    beside = [
        chart_panel("hosts", hosts, label="hosts as boxes; each rank coloured by its median", height_px=142),
        html.Div(loading(180), id=region_id("heat-values")),
    ]
    return dmc.Stack(
        [
            html.Div(controls_panel("heat"), className="flowing"),
            html.Div(loading(46), id=region_id("heat-says")),
            html.Div(id=region_id("heat-scale"), className="scale-strip"),
            html.Div(beside, className="hosts-and-values"),
            chart_panel("cells", cells, label="rank by step, coloured", height_px=300),
            html.Div(id=region_id("heat-places")),
        ],
        gap="md",
    )


def control_values(state: ViewState, reads: Reads) -> dict[str, object]:
    """The values of all controls of the page."""
    rows = {"only": state.only, "sort": state.sort.value, "top": "" if state.top is None else state.top}
    return {**stage_values(state, reads), **rows}


def _draw_controls(state: ViewState, reads: Reads) -> Component:
    """The controls that choose what is measured, and for which ranks."""
    axes = reads.facts(state).topology.mesh
    axis = next((name for name, degree in axes if degree > 1), axes[0][0])
    only = text_input("Only ranks", "only", f"all (such as {axis}0, or a host)", value=state.only, debounce=True)
    return bar(*stage_controls(state, reads), only)


def _draw_row_controls(state: ViewState, reads: Reads) -> Component:
    """The controls that choose which rows are drawn, and in which order."""
    shown = {"sort": state.sort.value, "top": "" if state.top is None else state.top}
    return bar(
        switch("Order of ranks", "sort", shown["sort"], ORDERS),
        number_input("Highest only", "top", shown["top"], "all"),
    )


def _draw_links(state: ViewState, reads: Reads) -> Component:
    grid = link_button("Show in grid", replace(state, view=View.GRID, colour=Colour.METRIC))
    return html.Div([*window_links(state, NEWEST_STEPS), grid], className="links")


def _draw_says(state: ViewState, reads: Reads) -> Component:
    """The summary, or the error that no rank matches the filter."""
    allowed_ranks(state, reads.facts(state))
    return draw_says(state, reads)


def _draw_scale(state: ViewState, reads: Reads) -> Component | None:
    picture = picture_of(state, reads)
    if picture is None:
        return None
    _, times = times_of(state, reads)
    basis = f", {times.basis.partition(',')[0]}" if times.stage.stage_class is StageClass.COMPUTE else ""
    of_step = " in % of the step" if state.metric in (Metric.WAIT, Metric.EXPOSED) else ""
    title = f"{times.stage.label}, {METRICS[state.metric.value].lower()}{of_step}{basis}"
    return colour_scale(title, picture.colours, picture.suspects)


def _draw_hosts_title(state: ViewState, reads: Reads) -> Component:
    facts, times = times_of(state, reads)
    run, steps = facts.summary, chosen_steps(state, facts)
    exactly = replace(state, run=run.run_id, attempt=run.attempt, steps=steps)
    return titled(f"Hosts: {over_steps(times)} of steps {steps.first} to {steps.last}", exactly)


def _draw_values(state: ViewState, reads: Reads) -> Component | None:
    picture = picture_of(state, reads)
    if picture is None:
        return None
    found = distribution(picture.value, picture.shown.matching, picture.suspects)
    if found is None:
        return None
    facts, times = times_of(state, reads)
    title = f"{count(found.num_ranks, 'rank')}: {over_steps(times)} of the steps"
    return panel(title, histogram(found, state.metric, facts))


def _draw_cells_title(state: ViewState, reads: Reads) -> Component | None:
    picture = picture_of(state, reads)
    if picture is None:
        return None
    pooled = pooling_note(picture.cells)
    notes = [dmc.Text(pooled, size="sm", className="left-out")] if pooled else []
    if hidden := picture.shown.hidden_suspects:
        several = "s" * (len(hidden) > 1)
        every = dcc.Link("Show all ranks", href=replace(state, only="").search())
        text = f"The filter leaves out suspect rank{several} {name_some(hidden)}. "
        notes.append(dmc.Text([text, every], size="sm", className="left-out"))
    signs = [event_legend()] if run_events(_shown(state, reads), reads) else []
    return html.Div([heading(_title_of_cells(picture, state, reads.facts(state))), *notes, *signs])


def _title_of_cells(picture: Picture, state: ViewState, facts: RunFacts) -> str:
    num_shown, num_ranks = len(picture.shown.ranks), facts.topology.world_size
    which = [f"{num_shown:,} of {num_ranks:,} ranks"] * (num_shown < num_ranks)
    order = ["the highest value first"] * (state.sort is RowOrder.VALUE)
    chosen = f": {', '.join([*which, *order])}" if which or order else ""
    return f"Rank by step{chosen}. Click a cell or an event to open that step"


def _draw_places(state: ViewState, reads: Reads) -> Component:
    """Data for hover texts: hosts and roles in the order of ranks, each with the number of its ranks, and the axes of
    the mesh, each with its stride and degree."""
    facts = reads.facts(state)
    grid = facts.topology
    places = {
        "hosts": [[name or "host unknown", len([*ranks])] for name, ranks in groupby(facts.hosts)],
        "roles": [[name, len([*ranks])] for name, ranks in groupby(facts.roles)],
        "axes": [[name, grid.stride(name), degree] for name, degree in grid.mesh],
    }
    return html.Div(**{"data-places": json.dumps(places, separators=(",", ":"))})


def _draw_hosts(state: ViewState, reads: Reads) -> go.Figure | None:
    picture = picture_of(state, reads)
    if picture is None:
        return None
    facts, times = times_of(state, reads)
    return host_boxes(
        times,
        picture.value,
        picture.beside,
        state.metric,
        picture.colours,
        lay_out(facts.hosts, facts.local_ranks, picture.shown.matching),
        {*picture.suspects},
        keep=_keep(state, facts),
    )


def _draw_cells(state: ViewState, reads: Reads) -> go.Figure | None:
    picture = picture_of(state, reads)
    if picture is None:
        return None
    facts = reads.facts(state)
    return rank_by_step(
        picture.cells,
        state.metric,
        picture.colours,
        facts.hosts,
        facts.place,
        picture.suspects,
        keep=f"{_keep(state, facts)}/{state.sort}/{state.top}",
        events=run_events(_shown(state, reads), reads),
    )


def _keep(state: ViewState, facts: RunFacts) -> str:
    return f"{facts.summary.run_id}/{facts.summary.attempt}/{state.steps}/{state.stage.label}/{state.only}"


def ask_ahead(state: ViewState, reads: Reads) -> None:
    picture_of(state, reads)


def _shown(state: ViewState, reads: Reads) -> Shown:
    return shown_steps(state, chosen_steps(state, reads.facts(state)), reads)


def _after_click(state: ViewState, reads: Reads, point: Mapping[str, Any]) -> ViewState:
    """The view after a click on a cell, or on an event above the cells."""
    if isinstance(point.get("customdata"), str):
        return after_event(state, _shown(state, reads), reads, point)
    return after_click(state, "cells", point)


def _after_drag(state: ViewState, reads: Reads, first: object, last: object) -> ViewState:
    return after_brush(state, first, last)


PAGE = Page(
    title="Heat map",
    skeleton=skeleton,
    regions={
        "heat-controls": Region(draw=_draw_controls, live=False),
        "heat-links": Region(draw=_draw_links, live=False, quiet=True),
        "heat-says": Region(draw=_draw_says),
        "heat-scale": Region(draw=_draw_scale, quiet=True),
        "hosts-title": Region(draw=_draw_hosts_title, quiet=True),
        "heat-values": Region(draw=_draw_values, quiet=True),
        "cells-title": Region(draw=_draw_cells_title, quiet=True),
        "cells-controls": Region(draw=_draw_row_controls, live=False, quiet=True),
        "heat-places": Region(draw=_draw_places, quiet=True),
    },
    charts={
        "hosts": Chart(draw=_draw_hosts),
        "cells": Chart(draw=_draw_cells, after_drag=_after_drag, after_click=_after_click),
    },
    control_values=control_values,
    preload=ask_ahead,
    freshness=lambda state, reads: reads.report_freshness(state),
)
