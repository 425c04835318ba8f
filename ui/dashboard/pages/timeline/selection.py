"""The ranks and the step that the timeline shows, with all defaults applied, and the controls that set them."""

from dataclasses import dataclass, replace

import dash_mantine_components as dmc
import numpy as np
from dash import html
from dash.development.base_component import Component

from diagnose.model.run_state import RunState
from telemetry.topology import AXES
from ui.dashboard.data import Reads
from ui.dashboard.defaults import Rows, chosen_rows, chosen_step, slowest_step, suspects, typical_step
from ui.dashboard.one_clock import OneClock
from ui.dashboard.pages.controls import bar, link_button, number_input, switch
from ui.dashboard.pages.interface import control_id
from ui.dashboard.pages.timeline.spans_buffer import Drawn, fit
from ui.dashboard.records import RunFacts, SpanColumns
from ui.dashboard.view_state import SHOWN, Group, View, ViewState


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSelection:
    """Which ranks, in which step."""

    facts: RunFacts
    rows: Rows
    step: int


def selection(state: ViewState, reads: Reads) -> StepSelection:
    """The detectors are asked only where the address names no rank: at twelve thousand ranks they take their time."""
    facts = reads.facts(state)
    named = suspects(reads.reports.of(facts.summary)) if state.rank is None else ()
    return StepSelection(facts=facts, rows=chosen_rows(state, facts, named), step=chosen_step(state, facts))


def displayed(state: ViewState, rows: Rows) -> tuple[int, ...]:
    """The ranks from the top: the pinned ones, then the others."""
    pinned = tuple(rank for rank in state.pins if rank in rows.ranks)
    return pinned + tuple(rank for rank in rows.ranks if rank not in pinned)


def aligned(one: StepSelection, reads: Reads) -> OneClock:
    """The spans of a scene on one clock."""
    return reads.aligned_spans(one.facts, one.step, one.rows.ranks)


def spans(one: StepSelection, reads: Reads) -> SpanColumns:
    return aligned(one, reads).spans


def drawn(one: StepSelection, reads: Reads) -> Drawn:
    """As many of the spans as travel to the browser."""
    return fit(spans(one, reads))


GROUP_NAMES = {Group.PP: "Pipeline", Group.DP: "Data", Group.TP: "Tensor", Group.ALL: "All ranks"}
HIDDEN = "hidden"
MAX_LISTED = 1024
"""Ranks that a list to choose from holds; of more the number is typed."""


def control_values(state: ViewState, reads: Reads) -> dict[str, object]:
    """Group, rank and step of a view; where the address asks for what is not there, what it asked for."""
    shown = selection(replace(state, step=None, rank=_there(state, reads)), reads)
    rank = shown.rows.rank if state.rank is None else state.rank
    return {
        "group": (state.group or shown.rows.group).value,
        "rank": str(rank) if _are_listed(shown.facts) else rank,
        "step": "" if state.step is None else state.step,
        "ideal": SHOWN if state.ideal else HIDDEN,
    }


def draw_controls(state: ViewState, reads: Reads) -> Component:
    """Group, rank and step."""
    shown, facts = control_values(state, reads), reads.facts(state)
    groups = {group.value: name for group, name in GROUP_NAMES.items() if _has(group, facts)}
    return bar(
        switch("Group", "group", shown["group"], groups),
        _rank_list(shown["rank"], facts) if _are_listed(facts) else number_input("Rank", "rank", shown["rank"], "0"),
        number_input("Step", "step", shown["step"], "newest" if facts.summary.state is RunState.LIVE else "typical"),
        switch("Ideal timeline", "ideal", shown["ideal"], {HIDDEN: "Hidden", SHOWN: "Shown"}),
    )


def draw_links(state: ViewState, reads: Reads) -> Component:
    """The way to the step before and after, to some that are telling, and to the grid."""
    facts = reads.facts(state)
    stored, here = facts.steps.step, replace(state, span=None, area=None)
    at = int(np.searchsorted(stored, chosen_step(state, facts)))
    steps = {"Typical": typical_step(facts), "Slowest": slowest_step(facts), "Newest": None}
    links = [link_button(name, replace(here, step=step)) for name, step in steps.items()]
    if at + 1 < len(stored):
        after = replace(here, step=int(stored[at + 1]))
        links.insert(0, link_button("Next →", after, name="step-next", title="next step: key ]"))
    if at > 0:
        before = replace(here, step=int(stored[at - 1]))
        links.insert(0, link_button("← Previous", before, name="step-previous", title="previous step: key ["))
    links.append(link_button("Show in grid", replace(here, view=View.GRID)))
    return html.Div(links, className="links")


def _there(state: ViewState, reads: Reads) -> int | None:
    """The rank of the address, where there is one of that number."""
    world = reads.facts(state).topology.world_size
    return state.rank if state.rank is not None and state.rank < world else None


def _are_listed(facts: RunFacts) -> bool:
    return facts.topology.world_size <= MAX_LISTED


def _rank_list(shown: object, facts: RunFacts) -> Component:
    places = ((rank, facts.topology.describe(rank)) for rank in range(facts.topology.world_size))
    return dmc.Select(
        label="Rank",
        id=control_id("rank"),
        value=shown,
        data=[{"value": str(rank), "label": f"{rank} · {place}"} for rank, place in places],
        searchable=True,
        allowDeselect=False,
        limit=200,
        w=170 if facts.topology.is_plain else 260,
    )


def _has(group: Group, facts: RunFacts) -> bool:
    return group is Group.ALL or any(axis == group.value and getattr(facts.topology, axis) > 1 for axis in AXES)
