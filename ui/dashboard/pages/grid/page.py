"""The grid page: dp x pp x tp in one picture, coloured by state, blame or stage time, and details of one rank."""

from collections.abc import Sequence
from dataclasses import replace

import dash_mantine_components as dmc
import plotly.graph_objects as go
from dash import dcc, html
from dash.development.base_component import Component

from ui.dashboard.data import Reads
from ui.dashboard.data.fleet import agents_freshness
from ui.dashboard.data.stage_times import stage_times
from ui.dashboard.data.whatif import whatif_freshness
from ui.dashboard.defaults import groups_of, suspects, worst_finding
from ui.dashboard.figures.grid import rank_grid
from ui.dashboard.figures.grid_colours import GridColours, by_blame, by_metric, by_standing
from ui.dashboard.figures.hang import SIGNS, Standing, hops, path
from ui.dashboard.pages.controls import bar, number_input, switch, titled, window_values
from ui.dashboard.pages.findings import looking
from ui.dashboard.pages.grid.body import MAX_SEEN_THROUGH, rank_body
from ui.dashboard.pages.grid.rank import RankSelection, rank_panel, selection, standings
from ui.dashboard.pages.hang.verdict import legend
from ui.dashboard.pages.heat_map import says as heat_map
from ui.dashboard.pages.heat_map.picture import drawn_stage, has_values
from ui.dashboard.pages.heat_map.stage_controls import stage_controls, stage_values
from ui.dashboard.pages.interface import Chart, Page, Region, region_id
from ui.dashboard.pages.panels import chart_panel, loading, no_stall_text
from ui.dashboard.pages.profiling import profile_freshness
from ui.dashboard.pages.whatif import page as whatif
from ui.dashboard.pages.whatif.analysis import concluded
from ui.dashboard.view_state import Colour, Form, Group, View, ViewState
from ui.dashboard.wording import degrees, group_text

COLOURS = {Colour.STATE: "State", Colour.BLAME: "Blame", Colour.METRIC: "Time of a stage"}
FORMS = {Form.SLICES: "Slices", Form.BODY: "3D"}
LABEL = (
    "the ranks of the grid, coloured as chosen above; details of the chosen rank, with links to its neighbours, are "
    "beside the grid"
)


def skeleton() -> Component:
    controls = html.Section(html.Div(loading(60), id=region_id("grid-controls")), className="panel controls")
    chart = chart_panel("grid", html.Div(loading(52), id=region_id("grid-title")), label=LABEL, height_px=320)
    rank = html.Aside(html.Div(loading(300), id=region_id("grid-rank")), **{"aria-label": "the chosen rank"})
    left = html.Div([html.Div(loading(46), id=region_id("grid-says")), chart], className="stacked")
    return dmc.Stack([controls, html.Div([left, html.Div(rank)], className="beside wide-details")], gap="md")


def control_values(state: ViewState, reads: Reads) -> dict[str, object]:
    """Colour, form and rank of a view, and what belongs to its colour."""
    return {
        "colour": state.colour.value,
        "form": state.form.value,
        "rank": "" if state.rank is None else state.rank,
        **(stage_values(state, reads) if state.colour is Colour.METRIC else window_values(state)),
    }


def _draw_controls(state: ViewState, reads: Reads) -> Component:
    shown = control_values(state, reads)
    rows = [
        bar(
            switch("Colour by", "colour", shown["colour"], {choice.value: name for choice, name in COLOURS.items()}),
            switch("Drawn as", "form", shown["form"], {choice.value: name for choice, name in FORMS.items()}),
            number_input("Rank", "rank", shown["rank"], "worst or 0"),
        )
    ]
    if state.colour is Colour.METRIC:
        rows.append(bar(*stage_controls(state, reads)))
    if state.colour is Colour.BLAME:
        rows.append(whatif.draw_controls(state, reads))
    return dmc.Stack(rows, gap="sm")


def draw_says(state: ViewState, reads: Reads) -> Component:
    """A summary of the picture."""
    shown = selection(state, reads)
    if state.colour is Colour.METRIC:
        return heat_map.draw_says(state, reads)
    if state.colour is Colour.BLAME:
        return whatif.draw_says(state, reads)
    return html.Div(_state_in_words(shown, state, reads), role="status")


def _state_in_words(shown: RankSelection, state: ViewState, reads: Reads) -> list[Component]:
    if shown.verdict is not None:
        address = replace(state, view=View.HANG).search()
        return [
            dmc.Text(shown.verdict.headline, fw=600, className="says"),
            dmc.Text([f"Next: {shown.verdict.next_step} ", dcc.Link("hang view", href=address)], size="sm"),
        ]
    report = reads.reports.of(shown.facts.summary)
    if report is None:
        return [looking(shown.facts)]
    worst, calm = worst_finding(report), no_stall_text(shown.facts.summary)
    if worst is None:
        return [dmc.Text(f"{calm}, and no finding names a rank.", fw=600, className="says")]
    return [
        dmc.Text(worst.headline, fw=600, className="says"),
        dmc.Text(f"{calm}. Next: {worst.next_step}", size="sm", c="dimmed"),
    ]


def _draw_title(state: ViewState, reads: Reads) -> Component:
    shown = selection(state, reads)
    run, grid = shown.facts.summary, shown.facts.topology
    exactly = replace(state, run=run.run_id, attempt=run.attempt, rank=shown.rank)
    head = titled(f"{degrees(grid)}. Click a rank", exactly)
    colours = legend(standings(reads, shown.facts, shown.verdict)) if state.colour is Colour.STATE else None
    marked = suspects(reads.reports.of(run)) if state.colour is not Colour.STATE else ()
    return html.Div([head, colours, _lines(shown, state, marked)])


def _lines(shown: RankSelection, state: ViewState, marked: Sequence[int]) -> Component:
    """The legend of lines and marks: the groups of the rank in slices, and the mark of the ranks ``marked``. The
    picture itself names the lines of a 3D grid."""
    grid, waits, is_body = shown.facts.topology, _waits(shown), state.form is Form.BODY
    items = [
        html.Li([html.Span(className=f"line-sample {group}"), group_text(group, shown.rank, grid)])
        for group in reversed(groups_of(grid))
        if group is not Group.ALL and not is_body
    ]
    if marked:
        items.append(html.Li(f"{'◆' if is_body else SIGNS[Standing.SUSPECT].symbol} suspect: named by a finding"))
    if waits:
        items.append(html.Li(f"→ waiting chain from rank {shown.rank} to the root cause"))
    elif grid.pp > 1:
        items.append(html.Li("→ direction of activations"))
    if is_body:
        items.append(html.Li("Drag to rotate, use the wheel to zoom."))
        if grid.world_size > MAX_SEEN_THROUGH:
            items.append(
                html.Li(
                    "Too many ranks to draw all: only the slices through the chosen rank and the outliers are shown."
                )
            )
    return html.Ul(items, className="legend", **{"aria-label": "lines of the grid"})


def draw_grid(state: ViewState, reads: Reads) -> go.Figure | None:
    """The figure of the grid. None if no rank has a value, or if a what-if analysis that it needs is not ready."""
    shown = selection(state, reads)
    facts, cells = shown.facts, _cells(shown, state, reads)
    if cells is None:
        return None
    run, waits = facts.summary, _waits(shown)
    keep = f"{run.run_id}/{run.attempt}/{state.form}/{state.colour}"
    if state.form is Form.BODY:
        return rank_body(facts.topology, cells, facts.hosts_and_roles, chosen=shown.rank, path=waits, keep=keep)
    along = waits or facts.topology.group(shown.rank, along="pp")
    return rank_grid(
        facts.topology, cells, facts.hosts_and_roles, chosen=shown.rank, path=along, keep=keep, with_groups=True
    )


def _waits(shown: RankSelection) -> Sequence[int]:
    return () if shown.verdict is None else path(hops(shown.verdict, shown.rank))


def _cells(shown: RankSelection, state: ViewState, reads: Reads) -> GridColours | None:
    facts = shown.facts
    if state.colour is Colour.STATE:
        return by_standing(standings(reads, facts, shown.verdict))
    named = suspects(reads.reports.of(facts.summary))
    if state.colour is Colour.METRIC:
        stage = drawn_stage(state, reads)
        times = stage_times(reads, facts, stage, state.clock, shown.steps, state.metric)
        return by_metric(times, state.metric, named) if has_values(times, state.metric) else None
    analysis = concluded(state, reads)
    return None if analysis is None else by_blame(analysis.figures, named)


def _draw_rank(state: ViewState, reads: Reads) -> Component:
    return html.Div(rank_panel(selection(state, reads), state, reads), className="panel")


def freshness(state: ViewState, reads: Reads) -> list[object]:
    replay = whatif_freshness(state, reads) if state.colour is Colour.BLAME else []
    agents = agents_freshness(reads, reads.newest(state))
    shared = [*reads.stall_freshness(state), *reads.report_freshness(state), *profile_freshness(state, reads)]
    return [*shared, *replay, agents]


PAGE = Page(
    title="Grid",
    skeleton=skeleton,
    regions={
        "grid-controls": Region(draw=_draw_controls, live=False),
        "grid-says": Region(draw=draw_says),
        "grid-title": Region(draw=_draw_title, quiet=True),
        "grid-rank": Region(draw=_draw_rank, quiet=True),
    },
    charts={"grid": Chart(draw=draw_grid)},
    control_values=control_values,
    preload=lambda state, reads: _cells(selection(state, reads), state, reads),
    freshness=freshness,
)
