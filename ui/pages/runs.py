"""The list of runs, newest first."""

import dash_mantine_components as dmc
from dash import dcc, html
from dash.development.base_component import Component

from ui.pages.interface import Page, Region, region_id
from ui.pages.states import empty_store, loading
from ui.reads import Reads
from ui.records import RunState, RunSummary
from ui.view_state import View, ViewState
from ui.wording import long_duration, stamp

STATE_COLOURS = {RunState.LIVE: "teal", RunState.SILENT: "orange", RunState.ENDED: "gray"}
COLUMNS = ("Run", "Attempt", "State", "Started", "Lasted", "Ranks", "Grid", "Steps", "What")


def skeleton() -> Component:
    return html.Div(loading(240), id=region_id("runs"))


def draw_runs(state: ViewState, reads: Reads) -> Component:
    """A table with a link into each run."""
    runs = reads.runs()
    if not runs:
        return empty_store()
    head = dmc.TableThead(dmc.TableTr([dmc.TableTh(name) for name in COLUMNS]))
    body = dmc.TableTbody([_row(run) for run in runs])
    table = dmc.Table([head, body], highlightOnHover=True, verticalSpacing="xs", className="runs-table")
    return dmc.Paper(dmc.TableScrollContainer(table, minWidth=760), withBorder=True, p="xs")


def state_badge(state: RunState) -> Component:
    """Whether anybody is still at work, in a word."""
    return dmc.Badge(state.value, color=STATE_COLOURS[state], variant="light", size="md")


def _row(run: RunSummary) -> Component:
    address = ViewState(view=View.OVERVIEW, run=run.run_id, attempt=run.attempt).search()
    grid = f"dp{run.topology.dp} x pp{run.topology.pp} x tp{run.topology.tp}" if run.topology else "unknown"
    steps = f"{run.first_step:,} to {run.last_step:,}" if run.last_step or run.last_ns > run.started_ns else "none yet"
    what = " · ".join(run.meta[key] for key in ("recipe", "model", "device") if key in run.meta)
    cells = [
        dcc.Link(run.run_id, href=address, className="run-link"),
        str(run.attempt),
        state_badge(run.state),
        stamp(run.started_ns),
        long_duration((run.last_ns - run.started_ns) / 1e9),
        f"{run.num_ranks:,}",
        grid,
        steps,
        what,
    ]
    return dmc.TableTr([dmc.TableTd(cell) for cell in cells])


PAGE = Page(skeleton=skeleton, regions={"runs": Region(draw=draw_runs)}, needs_run=False, needs_step=False)
