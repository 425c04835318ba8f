"""The hang page: the verdict, the grid of ranks, and the waiting chain and evidence of one rank."""

from dataclasses import dataclass, replace

import dash_mantine_components as dmc
import plotly.graph_objects as go
from dash import html
from dash.development.base_component import Component

from diagnose.hang.verdict import HangVerdict
from telemetry.errors import UsageError
from ui.dashboard.background import StillWorking
from ui.dashboard.data import Reads
from ui.dashboard.figures.chain import hops, path
from ui.dashboard.figures.grid import rank_grid
from ui.dashboard.figures.grid_colours import by_standing
from ui.dashboard.figures.standing import Standing, standing_of
from ui.dashboard.pages.controls import bar, link_button, number_input, titled
from ui.dashboard.pages.hang.chain import chain_list
from ui.dashboard.pages.hang.rank import rank_details
from ui.dashboard.pages.hang.verdict import (
    legend,
    merged_stacks,
    nothing_stands_still,
    reading_evidence,
    verdict_in_full,
)
from ui.dashboard.pages.interface import Chart, Page, Region, region_id
from ui.dashboard.pages.panels import chart_panel, loading, panel
from ui.dashboard.records import RunFacts
from ui.dashboard.view_state import Form, View, ViewState
from ui.dashboard.wording import degrees


@dataclass(frozen=True, slots=True, kw_only=True)
class HangSelection:
    """A verdict and the rank that was chosen."""

    facts: RunFacts
    verdict: HangVerdict
    rank: int

    @property
    def standings(self) -> list[Standing]:
        return [standing_of(self.verdict, rank) for rank in range(self.facts.topology.world_size)]


def skeleton() -> Component:
    grid = chart_panel(
        "grid",
        html.Div(
            [html.Div(loading(52), id=region_id("grid-title")), html.Div(id=region_id("choose-rank"))],
            className="grid-head",
        ),
        label="the grid of ranks, coloured by state; the list below has the same information for the chosen rank",
        height_px=240,
    )
    left = html.Div([grid, html.Div(id=region_id("chain"))], className="stacked")
    beside = html.Div([left, html.Aside(html.Div(id=region_id("rank")), **{"aria-label": "the chosen rank"})])
    beside.className = "beside wide-details"
    return dmc.Stack(
        [
            html.Div(loading(140), id=region_id("hang-verdict")),
            beside,
            html.Div(id=region_id("stacks")),
        ],
        gap="md",
    )


def control_values(state: ViewState, reads: Reads) -> dict[str, object]:
    """The rank that the address names."""
    return {"rank": "" if state.rank is None else state.rank}


def draw_verdict(state: ViewState, reads: Reads) -> Component:
    """Who holds the job up; or that nothing stands still."""
    facts = reads.facts(state)
    try:
        verdict = reads.hang(facts)
    except StillWorking:
        return reading_evidence(facts)
    return nothing_stands_still(facts.summary) if verdict is None else verdict_in_full(verdict, state)


def draw_title(state: ViewState, reads: Reads) -> Component | None:
    """What the grid shows: its axes, its colours, and the way to choose a rank."""
    shown = _selection(state, reads)
    if shown is None:
        return None
    run, grid = shown.facts.summary, shown.facts.topology
    exactly = replace(state, run=run.run_id, attempt=run.attempt, rank=shown.rank)
    head = titled(f"The grid: {degrees(grid)}. Click a rank", exactly)
    return html.Div([head, legend(shown.standings)])


def draw_choice(state: ViewState, reads: Reads) -> Component | None:
    """The rank, for those who know its number, and the grid as a body."""
    if reads.hang(reads.facts(state)) is None:
        return None
    turned = link_button("Show in 3D", replace(state, view=View.GRID, form=Form.BODY))
    return bar(number_input("Rank", "rank", control_values(state, reads)["rank"], "first behind"), turned)


def draw_grid(state: ViewState, reads: Reads) -> go.Figure | None:
    """The picture."""
    shown = _selection(state, reads)
    if shown is None:
        return None
    return rank_grid(
        shown.facts.topology,
        by_standing(shown.standings),
        shown.facts.hosts,
        chosen=shown.rank,
        path=path(hops(shown.verdict, shown.rank)),
        keep=f"{shown.facts.summary.run_id}/{shown.facts.summary.attempt}",
    )


def draw_chain(state: ViewState, reads: Reads) -> Component | None:
    """From the chosen rank to the root."""
    shown = _selection(state, reads)
    if shown is None:
        return None
    waits = shown.verdict.evidence.tense("waits", "waited")
    return panel(f"Rank {shown.rank} {waits} for", chain_list(shown.verdict, shown.rank, shown.facts, state))


def draw_rank(state: ViewState, reads: Reads) -> Component | None:
    """All about the chosen rank."""
    shown = _selection(state, reads)
    return shown and html.Div(rank_details(shown.verdict, shown.rank, shown.facts, state), className="panel")


def draw_stacks(state: ViewState, reads: Reads) -> Component | None:
    """Where everybody stands, equal stacks folded into one."""
    shown = _selection(state, reads)
    if shown is None:
        return None
    return panel("Merged stacks of the main threads", merged_stacks(shown.verdict))


def _selection(state: ViewState, reads: Reads) -> HangSelection | None:
    """The verdict and a rank: that of the address, else the first that holds others up.

    Raises:
        UsageError: the address names a rank beyond the grid.
    """
    facts = reads.facts(state)
    verdict = reads.hang(facts)
    if verdict is None:
        return None
    world = facts.topology.world_size
    first = next((rank for rank in (*verdict.initiating, *verdict.waits) if rank < world), 0)
    rank = first if state.rank is None else state.rank
    if rank >= world:
        raise UsageError(f"There is no rank {rank}", hint=f"this run has ranks 0 to {world - 1}")
    return HangSelection(facts=facts, verdict=verdict, rank=rank)


PAGE = Page(
    skeleton=skeleton,
    regions={
        "hang-verdict": Region(draw=draw_verdict),
        "grid-title": Region(draw=draw_title, quiet=True),
        "choose-rank": Region(draw=draw_choice, quiet=True),
        "chain": Region(draw=draw_chain, quiet=True),
        "rank": Region(draw=draw_rank),
        "stacks": Region(draw=draw_stacks, quiet=True),
    },
    charts={"grid": Chart(draw=draw_grid)},
    ahead=lambda state, reads: reads.hang(reads.facts(state)),
    control_values=control_values,
    needs_step=False,
)
