"""The controls and links of the timeline that choose group, rank and step."""

from collections.abc import Mapping
from dataclasses import replace

import dash_mantine_components as dmc
import numpy as np
from dash import html
from dash.development.base_component import Component

from diagnose.model.run_state import RunState
from ui.dashboard.data import Reads
from ui.dashboard.defaults import groups_of, slowest_step, typical_step
from ui.dashboard.pages.controls import bar, link_button, number_input, switch
from ui.dashboard.pages.interface import control_id
from ui.dashboard.pages.timeline.selection import StepSelection, known_steps, selection
from ui.dashboard.records import RunFacts
from ui.dashboard.timeline_view import Counters, RankOrder
from ui.dashboard.view_state import SHOWN, Group, View, ViewState

GROUP_NAMES = {
    Group.PP: "Pipeline",
    Group.DP: "Replicas",
    Group.CP: "Context",
    Group.EP: "Expert",
    Group.TP: "Tensor",
    Group.ALL: "All ranks",
}
COUNTER_NAMES: Mapping[str, str] = {
    Counters.NONE: "None",
    Counters.GPU: "GPU",
    Counters.NETWORK: "Network",
    Counters.HOST: "Host",
    Counters.ALL: "All",
}
ORDER_NAMES: Mapping[str, str] = {
    RankOrder.RANK: "Rank",
    RankOrder.HOST: "Host",
    RankOrder.COMPUTE: "Compute time",
    RankOrder.END: "End of step",
}
HIDDEN = "hidden"
COMPARE_TEXT = "this step and a typical step on one time axis"
MAX_LISTED = 1024
"""Largest number of ranks in the list to choose from. In a larger run, users type the rank."""


def control_values(state: ViewState, reads: Reads) -> dict[str, object]:
    """Group, rank and step of a view. A rank or step that does not exist is shown as the address names it."""
    shown = _without_choice(state, reads)
    world = shown.facts.topology.world_size
    rank = shown.rows.rank if state.rank is None else state.rank
    return {
        "group": shown.rows.group.value,
        "rank": str(rank) if world <= MAX_LISTED else rank,
        "step": "" if state.step is None else state.step,
        "num-steps": state.timeline.num_steps,
        "counters": state.timeline.counters.value,
        "rank-order": state.timeline.order.value,
        "ideal": SHOWN if state.ideal else HIDDEN,
    }


def draw_controls(state: ViewState, reads: Reads) -> Component:
    shown, facts = control_values(state, reads), reads.facts(state)
    groups = {group.value: GROUP_NAMES[group] for group in groups_of(facts.topology)}
    is_listed = facts.topology.world_size <= MAX_LISTED
    return bar(
        switch("Group", "group", shown["group"], groups),
        _rank_list(shown["rank"], facts) if is_listed else number_input("Rank", "rank", shown["rank"], "0"),
        number_input("Step", "step", shown["step"], _default_step(state, reads)),
        number_input("Steps shown", "num-steps", shown["num-steps"], "1"),
        switch("Order of ranks", "rank-order", shown["rank-order"], ORDER_NAMES),
        switch("Counters", "counters", shown["counters"], COUNTER_NAMES),
        switch("Ideal timeline", "ideal", shown["ideal"], {HIDDEN: "Hidden", SHOWN: "Shown"}),
    )


def _without_choice(state: ViewState, reads: Reads) -> StepSelection:
    """The selection of the view without its step, and without its rank if that does not exist."""
    world = reads.facts(state).topology.world_size
    known_rank = state.rank if state.rank is not None and state.rank < world else None
    return selection(replace(state, step=None, rank=known_rank), reads)


def _default_step(state: ViewState, reads: Reads) -> str:
    """The step that is shown without a choice, in a word."""
    shown = _without_choice(state, reads)
    if shown.facts.summary.state is RunState.LIVE:
        return "newest"
    return "unfinished" if shown.step == shown.unfinished else "typical"


def draw_links(state: ViewState, reads: Reads) -> Component:
    """Links to the previous and next step, to a typical, the slowest and the newest step, and to the grid."""
    shown = selection(state, reads)
    facts, steps = shown.facts, known_steps(shown.facts, shown.unfinished)
    at = int(np.searchsorted(steps, shown.step))
    named = {"Typical": typical_step(facts, state.steps), "Slowest": slowest_step(facts), "Newest": None}
    links = [link_button(name, state.at_step(step)) for name, step in named.items()]
    if shown.unfinished is not None:
        links.append(link_button("Unfinished", state.at_step(shown.unfinished), title="the step that ranks are in now"))
    if at + 1 < len(steps):
        after = state.at_step(int(steps[at + 1]))
        links.insert(0, link_button("Next →", after, name="step-next", title="next step: key ]"))
    if at > 0:
        before = state.at_step(int(steps[at - 1]))
        links.insert(0, link_button("← Previous", before, name="step-previous", title="previous step: key ["))
    if shown.step in facts.steps.step:
        links.append(link_button("Compare with typical", _with_typical(state, facts, shown.step), title=COMPARE_TEXT))
    links.append(link_button("Show in grid", replace(state, view=View.GRID)))
    return html.Div(links, className="links")


def _with_typical(state: ViewState, facts: RunFacts, step: int) -> ViewState:
    """The comparison of ``step`` with a typical step of the same attempt."""
    run = f"{facts.summary.run_id}/{facts.summary.attempt}"
    there = replace(state.at_step(step), view=View.COMPARE, a=run, b=run)
    return replace(there, timeline=replace(state.timeline, a_step=None))


def _rank_list(shown: object, facts: RunFacts) -> Component:
    places = ((rank, facts.place(rank)) for rank in range(facts.topology.world_size))
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
