"""The ablation page: what each technique of a training gains. It shows the ablation that the run belongs to."""

from collections.abc import Sequence
from dataclasses import replace

import dash_mantine_components as dmc
import plotly.graph_objects as go
from dash import dcc, html
from dash.development.base_component import Component

from diagnose.ablation import Ablation, AblationRow
from diagnose.report import ABLATION_COLUMNS, ablation_cells
from ui.dashboard.data import Reads
from ui.dashboard.data.ablation import ablation_of
from ui.dashboard.figures.ablation import EDGES_PX, row_times
from ui.dashboard.pages.interface import Chart, Page, Region, region_id
from ui.dashboard.pages.panels import chart_panel, heading, loading, panel, table
from ui.dashboard.view_state import View, ViewState
from ui.dashboard.wording import capitalized

NOTE = (
    "Medians over the runs of a row. ±: half the distance between the lowest and the highest run. "
    "The first quarter of the steps is not counted."
)
NONE = "This run belongs to no ablation. `rankscope ablate` trains a recipe with one technique more each time."


def skeleton() -> Component:
    title = heading("Step time of each row, with communication that no compute covers")
    return dmc.Stack(
        [
            html.Div(loading(200), id=region_id("ablation-table")),
            chart_panel("ablation-steps", title, label="step time of each row", height_px=4 * EDGES_PX),
            html.Div(id=region_id("ablation-options")),
        ],
        gap="md",
    )


def _ablation(state: ViewState, reads: Reads) -> Ablation | None:
    return ablation_of(reads.newest(state), reads)


def _draw_table(state: ViewState, reads: Reads) -> Component:
    ablation = _ablation(state, reads)
    if ablation is None:
        return panel("Ablation", dmc.Text(NONE, size="sm", c="dimmed"))
    rows = [ablation_cells(ablation, row) for row in ablation.rows]
    parts = [
        table([capitalized(name) for name in ABLATION_COLUMNS], rows, min_width_px=760),
        dmc.Text(NOTE, size="sm", c="dimmed"),
    ]
    return panel(f"Ablation {ablation.name}", dmc.Stack(parts, gap="xs"))


def _draw_steps(state: ViewState, reads: Reads) -> go.Figure | None:
    ablation = _ablation(state, reads)
    return None if ablation is None else row_times(ablation, keep=ablation.name)


def _draw_options(state: ViewState, reads: Reads) -> Component | None:
    ablation = _ablation(state, reads)
    if ablation is None:
        return None
    names = ("Row", "Options of rankscope train", "Runs")
    rows = [(row.number, html.Code(row.options), _runs(row, state)) for row in ablation.rows]
    return panel("How the rows were trained", table(names, rows, min_width_px=640))


def _runs(row: AblationRow, state: ViewState) -> Component:
    names = [run.run_id for run in row.runs]
    overviews = [replace(state.at_run(name), view=View.OVERVIEW).search() for name in names]
    return dmc.Stack([dcc.Link(name, href=href) for name, href in zip(names, overviews, strict=True)], gap=2)


def _freshness(state: ViewState, reads: Reads) -> Sequence[object]:
    ablation = _ablation(state, reads)
    return () if ablation is None else [len(row.runs) for row in ablation.rows]


PAGE = Page(
    title="Ablation",
    skeleton=skeleton,
    regions={
        "ablation-table": Region(draw=_draw_table),
        "ablation-options": Region(draw=_draw_options, quiet=True),
    },
    charts={"ablation-steps": Chart(draw=_draw_steps)},
    preload=_ablation,
    freshness=_freshness,
    needs_step=False,
)
