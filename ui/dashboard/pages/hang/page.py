"""The hang page: the verdict, the grid of ranks, and the waiting chain and evidence of one rank."""

from dataclasses import dataclass, replace

import dash_mantine_components as dmc
import plotly.graph_objects as go
from dash import html
from dash.development.base_component import Component

from diagnose.hang.place import place_of
from diagnose.hang.verdict import HangVerdict
from ui.dashboard.data import Reads
from ui.dashboard.data.cache import StillWorking
from ui.dashboard.defaults import chosen_rank
from ui.dashboard.figures.grid import rank_grid
from ui.dashboard.figures.grid_colours import by_standing
from ui.dashboard.figures.hang import WHY_TEXT, Hop, Standing, chain_starts, hops, path, standing_of
from ui.dashboard.pages.controls import bar, link_button, number_input, titled
from ui.dashboard.pages.hang.rank import rank_details
from ui.dashboard.pages.hang.verdict import (
    legend,
    merged_stacks,
    no_stall_notice,
    reading_evidence,
    verdict_in_full,
)
from ui.dashboard.pages.interface import Chart, Page, Region, region_id
from ui.dashboard.pages.panels import chart_panel, loading, panel, rank_chip, rank_chips, standing_badge
from ui.dashboard.records import RunFacts
from ui.dashboard.view_state import Form, View, ViewState
from ui.dashboard.wording import count, degrees, ranks_text

MAX_HOPS = 24
"""Largest number of hops of a chain that are shown from its begin. The last hop is always shown."""


def chain_list(verdict: HangVerdict, rank: int, facts: RunFacts, state: ViewState) -> Component:
    """Each rank of the chain, and between two ranks the operation, its number, its group and the reason."""
    chain = hops(verdict, rank)
    if not chain:
        return _end_of_chains(rank, verdict, state)
    shown = chain[:MAX_HOPS]
    items = [_rank_item(rank, verdict, facts, state)]
    for hop in shown:
        items += [_hop_item(hop, verdict), *_next_item(hop, verdict, facts, state)]
    if len(chain) > len(shown):
        items.append(html.Li(f"{count(len(chain) - len(shown) - 1, 'further hop')} …", className="chain-hop"))
        items += [_hop_item(chain[-1], verdict), *_next_item(chain[-1], verdict, facts, state)]
    if chain[-1].on in {hop.rank for hop in chain}:
        items.append(
            html.Li(
                f"These ranks {verdict.evidence.tense('wait', 'waited')} for each other in a cycle: a deadlock.",
                className="chain-note",
            )
        )
    return html.Ol(items, className="chain")


def _end_of_chains(rank: int, verdict: HangVerdict, state: ViewState) -> Component:
    """For a rank that waits for no rank: the ranks at which the chains that end at it begin."""
    starts = chain_starts(verdict, rank)
    text = f"Rank {rank} {verdict.evidence.tense('waits', 'waited')} for no known rank."
    if not starts:
        return html.Div(text, className="small")
    return html.Div(
        [f"{text} Waiting chains that end here begin at: ", rank_chips(starts, verdict, state)], className="small chips"
    )


def _rank_item(rank: int, verdict: HangVerdict, facts: RunFacts, state: ViewState) -> Component:
    known = verdict.evidence.ranks.get(rank)
    inside = rank < facts.topology.world_size
    place = facts.place(rank) if inside else ""
    host = (facts.hosts[rank] if inside else "") or (known.host if known else "") or "host unknown"
    parts = [html.Span(f"{place} · {host}", className="dim"), standing_badge(standing_of(verdict, rank))]
    if rank not in verdict.waits and known is not None:
        parts.append(html.Span(_where(known.stage, known.stack), className="chain-where"))
    return html.Li([rank_chip(rank, verdict, state), *parts], className="chain-rank")


def _where(stage: str, stack: tuple[str, ...]) -> str:
    line = f"at {place_of(stack)}" if stack else ""
    return " ".join(word for word in (f"in {stage}" if stage else "", line) if word)


def _hop_item(hop: Hop, verdict: HangVerdict) -> Component:
    late = "" if hop.on is None else f"{verdict.evidence.tense('waits', 'waited')} for rank {hop.on}"
    others = f" (and {ranks_text(hop.others, limit=4)})" if hop.others else ""
    return html.Li(
        [
            html.Span("↓", className="chain-arrow", **{"aria-hidden": "true"}),
            html.Span(
                [
                    f"{late}{others} in ",
                    html.Strong(hop.operation),
                    f" of {hop.group}: ",
                    html.Strong(hop.why.value),
                    html.Span(f" ({WHY_TEXT[hop.why]})", className="dim"),
                ]
            ),
        ],
        className="chain-hop",
    )


def _next_item(hop: Hop, verdict: HangVerdict, facts: RunFacts, state: ViewState) -> list[Component]:
    return [] if hop.on is None else [_rank_item(hop.on, verdict, facts, state)]


@dataclass(frozen=True, slots=True, kw_only=True)
class HangSelection:
    """A verdict and the chosen rank."""

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
    rank = html.Aside(html.Div(id=region_id("rank")), **{"aria-label": "the chosen rank"})
    beside = html.Div([left, rank], className="beside wide-details")
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
    """The verdict, or a note that there is no stall."""
    facts = reads.facts(state)
    try:
        verdict = reads.hang(facts)
    except StillWorking:
        return reading_evidence(facts)
    return no_stall_notice(facts.summary) if verdict is None else verdict_in_full(verdict, state)


def draw_title(state: ViewState, reads: Reads) -> Component | None:
    """The axes and colours of the grid."""
    shown = _selection(state, reads)
    if shown is None:
        return None
    run, grid = shown.facts.summary, shown.facts.topology
    exactly = replace(state, run=run.run_id, attempt=run.attempt, rank=shown.rank)
    head = titled(f"The grid: {degrees(grid)}. Click a rank for its evidence", exactly)
    return html.Div([head, legend(shown.standings)])


def _draw_choice(state: ViewState, reads: Reads) -> Component | None:
    if reads.hang(reads.facts(state)) is None:
        return None
    turned = link_button("Show in 3D", replace(state, view=View.GRID, form=Form.BODY))
    return bar(number_input("Rank", "rank", control_values(state, reads)["rank"], "first behind"), turned)


def draw_grid(state: ViewState, reads: Reads) -> go.Figure | None:
    """The figure of the grid. None without a stall."""
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


def _draw_chain(state: ViewState, reads: Reads) -> Component | None:
    shown = _selection(state, reads)
    if shown is None:
        return None
    waits = shown.verdict.evidence.tense("waits", "waited")
    return panel(f"Rank {shown.rank} {waits} for", chain_list(shown.verdict, shown.rank, shown.facts, state))


def draw_rank(state: ViewState, reads: Reads) -> Component | None:
    """The evidence of the chosen rank. None without a stall."""
    shown = _selection(state, reads)
    return shown and html.Div(rank_details(shown.verdict, shown.rank, shown.facts, state), className="panel")


def _draw_stacks(state: ViewState, reads: Reads) -> Component | None:
    shown = _selection(state, reads)
    if shown is None:
        return None
    return panel("Merged stacks of the main threads", merged_stacks(shown.verdict))


def _selection(state: ViewState, reads: Reads) -> HangSelection | None:
    """The verdict and the rank of the address. Otherwise the first rank that is behind. None without a verdict.

    Raises:
        UsageError: the address names a rank that does not exist.
    """
    facts = reads.facts(state)
    verdict = reads.hang(facts)
    if verdict is None:
        return None
    rank = chosen_rank(state, facts, (*verdict.initiating, *verdict.waits))
    return HangSelection(facts=facts, verdict=verdict, rank=rank)


PAGE = Page(
    title="Hang",
    skeleton=skeleton,
    regions={
        "hang-verdict": Region(draw=draw_verdict),
        "grid-title": Region(draw=draw_title, quiet=True),
        "choose-rank": Region(draw=_draw_choice, quiet=True),
        "chain": Region(draw=_draw_chain, quiet=True),
        "rank": Region(draw=draw_rank),
        "stacks": Region(draw=_draw_stacks, quiet=True),
    },
    charts={"grid": Chart(draw=draw_grid)},
    preload=lambda state, reads: reads.hang(reads.facts(state)),
    control_values=control_values,
    freshness=lambda state, reads: reads.stall_freshness(state),
    needs_step=False,
)
