"""The list of runs: one row per run, those with problems first. The name of a run links to its overview."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import dash_mantine_components as dmc
from dash import dcc, html
from dash.development.base_component import Component

from diagnose.model.recent_steps import RecentMean
from diagnose.model.run_state import RunState
from telemetry.topology import Topology
from ui.dashboard.data import Reads
from ui.dashboard.data.annotations import run_tags
from ui.dashboard.data.run_rows import GOODPUT_MEANING, RunRow
from ui.dashboard.pages.annotations import tag_list
from ui.dashboard.pages.controls import text_input
from ui.dashboard.pages.interface import Page, Region, control_id, region_id
from ui.dashboard.pages.panels import (
    UNKNOWN,
    empty_store,
    findings_cell,
    loading,
    mean_of_steps,
    notice,
    stamp_parts,
    state_cell,
)
from ui.dashboard.pages.runs.listing import RunList, run_list
from ui.dashboard.view_state import RunOrder, View, ViewState
from ui.dashboard.wording import count, degrees, duration

RECENT_MEANING = "mean over the newest window of up to 50 steps, as in the overview"


class Column(NamedTuple):
    """A column of the table. ``order``: the order that its link selects."""

    title: str
    order: RunOrder | None = None
    says: str = ""
    number: bool = False


COLUMNS = (
    Column("State", RunOrder.TROUBLE, "trouble first"),
    Column("Run", RunOrder.NAME, "by name"),
    Column("Open findings"),
    Column("Grid"),
    Column("Ranks", RunOrder.RANKS, "the largest first", number=True),
    Column("Step", number=True),
    Column("Step time", RunOrder.STEP_TIME, f"the longest first; {RECENT_MEANING}", number=True),
    Column("MFU", RunOrder.MFU, f"the lowest first; {RECENT_MEANING}", number=True),
    Column("Goodput", RunOrder.GOODPUT, "the lowest first; see below the table", number=True),
    Column("Started", RunOrder.STARTED, "the newest first"),
    Column("Last data"),
)


def skeleton() -> Component:
    return html.Div(
        [
            html.Div([html.Div(id=region_id(name)) for name in ("runs-controls", "runs-tag")], className="links"),
            html.Div(loading(240), id=region_id("runs")),
            html.P(GOODPUT_MEANING, className="dim small-print"),
        ],
        className="runs-page",
    )


def _draw_controls(state: ViewState, reads: Reads) -> Component:
    found = text_input("Find a run by name", "find", "part of a name (key: /)")
    found.value = state.find
    return html.Div(found, role="search")


def draw_tag_control(state: ViewState, reads: Reads) -> Component | None:
    """A choice among the tags of all runs. None if no run has a tag."""
    known = sorted({tag for tags in run_tags(reads).values() for tag in tags} | ({state.tag} if state.tag else set()))
    if not known:
        return None
    return dmc.Select(
        label="Tag",
        id=control_id("tag"),
        value=state.tag or None,
        data=known,
        placeholder="all runs",
        searchable=True,
        clearable=True,
        w=200,
    )


def draw_runs(state: ViewState, reads: Reads) -> Component:
    """A table with a link to each run."""
    runs = _listed(state, reads)
    if not runs.num_stored:
        return empty_store()
    if not runs.num_found:
        conditions = [f"has the tag {state.tag}"] * bool(state.tag) + [f"has “{state.find}” in its name"] * bool(
            state.find
        )
        return notice(f"No run {' and '.join(conditions)}", f"{count(runs.num_stored, 'run')} stored.")
    now_ns = reads.now_ns()
    table = html.Table(
        [_head(state), html.Tbody([_row(row, now_ns, state, reads) for row in runs.rows])],
        className="runs-table",
        **{"aria-label": "runs"},
    )
    return html.Section([html.P(_says(runs), className="dim"), html.Div(table, className="wide")], className="panel")


def _listed(state: ViewState, reads: Reads) -> RunList:
    return run_list(reads, state.find, state.order, state.tag)


def _says(runs: RunList) -> str:
    stored = f"{count(runs.num_stored, 'run')} stored, {runs.num_living:,} live"
    named = f"; {runs.num_found:,} found" if runs.num_found < runs.num_stored else ""
    cut = (
        f"; the first {len(runs.rows)} are shown. Search to find the others" if runs.num_found > len(runs.rows) else ""
    )
    among = (
        f". Only the {runs.num_compared} runs with the newest data are compared for this order"
        if runs.num_found > runs.num_compared
        else ""
    )
    return stored + named + cut + among


def _head(state: ViewState) -> Component:
    return html.Thead(html.Tr([_column(column, state) for column in COLUMNS]))


def _column(column: Column, state: ViewState) -> Component:
    kind = "number-cell" if column.number else ""
    if column.order is None:
        return html.Th(column.title, scope="col", className=kind)
    here = replace(state, order=column.order)
    current = state.order is column.order
    link = dcc.Link(column.title + (" ↓" if current else ""), href=here.search(), title=column.says)
    sorts = {"aria-sort": "other"} if current else {}
    return html.Th(link, scope="col", className=kind, **sorts)


def _row(row: RunRow, now_ns: int, state: ViewState, reads: Reads) -> Component:
    address = replace(state.at_run(row.run_id, row.attempt), view=View.OVERVIEW).search()
    restarted = f"{count(row.num_attempts, 'attempt')}" if row.num_attempts > 1 else ""
    name = [
        dcc.Link(row.run_id, href=address, className="run-link"),
        html.Div(
            [
                html.Div(" · ".join(filter(None, (row.what, restarted))), className="dim run-what"),
                tag_list(row.run_id, row.tags, state, reads),
            ],
            className="run-about",
        ),
    ]
    cells: list[Any] = [
        state_cell(row.state),
        name,
        findings_cell(row.findings),
        _grid(row.topology),
        f"{row.num_ranks:,}",
        UNKNOWN if row.last_step is None else f"{row.last_step:,}",
        _mean(row.step_time, duration),
        _mean(row.mfu, "{:.1%}".format),
        UNKNOWN if row.goodput is None else f"{row.goodput:.1%}",
        stamp_parts(row.started_ns),
        "now" if row.state is RunState.LIVE else stamp_parts(row.heard_ns),
    ]
    kinds = ["number-cell" if column.number else "" for column in COLUMNS]
    return html.Tr([html.Td(cell, className=kind) for cell, kind in zip(cells, kinds, strict=True)])


def _grid(topology: Topology | None) -> Any:
    """The degrees of a mesh, such as ``2 x 2 x 2``, with the names of the axes if these are not dp, pp and tp."""
    if topology is None:
        return UNKNOWN
    if not topology.is_plain:
        return degrees(topology)
    return html.Span(" x ".join(str(degree) for _, degree in topology.mesh), title="dp x pp x tp")


def _mean(recent: RecentMean | None, as_text: Callable[[float], str]) -> Any:
    return UNKNOWN if recent is None else html.Span(as_text(recent.mean), title=mean_of_steps(recent))


def control_values(state: ViewState, reads: Reads) -> Mapping[str, object]:
    return {"find": state.find, "tag": state.tag or None}


def freshness(state: ViewState, reads: Reads) -> list[object]:
    rows = _listed(state, reads)
    return [hashlib.blake2s(repr(rows).encode(), digest_size=16).hexdigest()]


PAGE = Page(
    title="Runs",
    skeleton=skeleton,
    regions={
        "runs-controls": Region(draw=_draw_controls, live=False),
        "runs-tag": Region(draw=draw_tag_control, quiet=True),
        "runs": Region(draw=draw_runs),
    },
    control_values=control_values,
    preload=lambda state, reads: _listed(state, reads),
    freshness=freshness,
    needs_run=False,
    needs_step=False,
)
