"""The compare page: whether B is slower than A, by how much, in which stages and on which ranks.

Both sides are in the address, in the form of `rankscope compare`. So a link shows the same comparison.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import dash_mantine_components as dmc
import plotly.graph_objects as go
from dash import dcc, html
from dash.development.base_component import Component

from diagnose.compare.records import Comparison, RankChange, Verdict
from diagnose.report import COMPARISON_COLUMNS, comparison_cells, comparison_headline, comparison_sides
from telemetry.errors import RankscopeError
from ui.dashboard.data import Reads
from ui.dashboard.data.cache import StillWorking
from ui.dashboard.data.compare import (
    choices,
    comparison,
    comparison_freshness,
    comparison_request,
    side_names,
    side_parts,
)
from ui.dashboard.data.compared_steps import compared_steps
from ui.dashboard.data.curves import Shown, shown_steps
from ui.dashboard.data.run_events import run_events
from ui.dashboard.figures.comparison import STEPS_PX, loss_curves, rank_ratios, step_times
from ui.dashboard.pages.compare import two_steps
from ui.dashboard.pages.controls import bar, link_button, timeline_of, titled
from ui.dashboard.pages.event_views import after_event, event_legend
from ui.dashboard.pages.interface import Chart, Page, Region, control_id, region_id
from ui.dashboard.pages.panels import (
    chart_panel,
    controls_panel,
    heading,
    loading,
    notice,
    panel,
    table,
    verdict_alert,
    working,
)
from ui.dashboard.view_state import StepRange, ViewState
from ui.dashboard.wording import capitalized

VERDICT_COLOURS = {Verdict.SLOWER: "red", Verdict.FASTER: "teal", Verdict.NO_DIFFERENCE: "gray"}
MOST_RANKS = 50
PART_HINT = "steps=100-199/ranks=0-7"
TWO_PARTS = "choose it as A and as B, then enter steps=0-99 as Part of A and steps=100-199 as Part of B."
ONE_ATTEMPT = (
    "Two of its steps are compared below. For a verdict, choose another run as A, or compare two parts of this run: "
    + TWO_PARTS
)
MEANINGS = (
    "±: half of the 95% interval. Of step: the time that the change adds, as a share of a step of A. The verdict is "
    "about all stages and ranks together. The times of stages include neither waiting nor the ranks that differ."
)


def skeleton() -> Component:
    steps, ratios = (
        html.Div([heading("Step time by step"), event_legend()]),
        heading("Compute time of each rank, B / A"),
    )
    return dmc.Stack(
        [
            controls_panel("compare"),
            html.Div(working("Comparing …"), id=region_id("compare-says")),
            html.Div(loading(240), id=region_id("compare-stages")),
            chart_panel("compare-steps", steps, label="step time of A and B by step", height_px=STEPS_PX),
            chart_panel("compare-loss", heading("Loss by step"), label="loss of A and B by step", height_px=STEPS_PX),
            chart_panel("compare-ranks", ratios, label="ratio of compute time by rank, coloured", height_px=STEPS_PX),
            html.Div(id=region_id("compare-named")),
            *two_steps.skeleton(),
        ],
        gap="md",
    )


def control_values(state: ViewState, reads: Reads) -> dict[str, object]:
    """The run and the part of both sides, and the controls of the two steps."""
    (a, a_part), (b, b_part) = map(side_parts, side_names(state, reads))
    of_steps: dict[str, object] = {}
    with suppress(RankscopeError):  # a region shows the error
        of_steps = two_steps.control_values(state, reads)
    return {"a": a, "a-part": a_part, "b": b, "b-part": b_part, **of_steps}


def _draw_controls(state: ViewState, reads: Reads) -> Component:
    (a, a_part), (b, b_part) = map(side_parts, side_names(state, reads))
    values, stored = {"a": a, "a-part": a_part, "b": b, "b-part": b_part}, choices(reads)
    return bar(*(control for side in ("a", "b") for control in _side_controls(side, values, stored)))


def _side_controls(side: str, values: dict[str, str], stored: list[str]) -> Iterator[Component]:
    chosen = values[side]
    data = stored if chosen in stored or not chosen else [chosen, *stored]
    label = "A: the reference" if side == "a" else "B: compared with A"
    yield dmc.Select(
        label=label, id=control_id(side), value=chosen, data=data, searchable=True, w=300, allowDeselect=False
    )
    yield dmc.TextInput(
        label=f"Part of {side.upper()}",
        id=control_id(f"{side}-part"),
        value=values[f"{side}-part"],
        placeholder=PART_HINT,
        debounce=True,
        w=220,
    )


def _draw_links(state: ViewState, reads: Reads) -> Component:
    a, b = side_names(state, reads)
    return html.Div([link_button("Swap A and B", replace(state, a=b, b=a))] if a else [], className="links")


def _found(state: ViewState, reads: Reads) -> Comparison | None:
    request = comparison_request(state, reads)
    return None if request is None or request.is_one_attempt else comparison(request, reads)


def _draw_says(state: ViewState, reads: Reads) -> Component:
    """The verdict, or a note that it is being computed, or what is missing."""
    request = comparison_request(state, reads)
    if request is None:
        return notice("Only one run is stored", f"Store another run, or compare two parts of this run: {TWO_PARTS}")
    if request.is_one_attempt:
        return notice("A and B are the same attempt", ONE_ATTEMPT)
    try:
        found = comparison(request, reads)
    except StillWorking:
        return working(f"Comparing {request.num_operations:,} operations. The page updates automatically.")
    lines = [dmc.Text(text, size="sm") for text in (*comparison_sides(found), *map(capitalized, found.notes))]
    return verdict_alert(comparison_headline(found), lines, VERDICT_COLOURS[found.verdict])


def _draw_stages(state: ViewState, reads: Reads) -> Component | None:
    found = _found(state, reads)
    if found is None:
        return None
    a, b = side_names(state, reads)
    run = reads.newest(state)
    exactly = replace(state, run=run.run_id, attempt=run.attempt, a=a, b=b)
    rows = [
        (*(html.Span(cell, className="whole-word") for cell in (name, *numbers)), _verdict(verdict), compared)
        for name, *numbers, verdict, compared in comparison_cells(found)
    ]
    parts = [
        titled("Step time and stages", exactly),
        table([capitalized(name) for name in COMPARISON_COLUMNS], rows, min_width_px=760),
        dmc.Text(MEANINGS, size="sm", c="dimmed"),
    ]
    return html.Section(parts, className="panel")


def _verdict(text: str) -> Component | str:
    colour = next((VERDICT_COLOURS[verdict] for verdict in Verdict if text == verdict), None)
    return dmc.Badge(text, color=colour, variant="light", size="md") if colour else text


def _draw_named(state: ViewState, reads: Reads) -> Component | None:
    found = _found(state, reads)
    if found is None or not found.ranks:
        return None
    names = ("Rank", "Host", "Change beyond the other ranks", "Of step", "Verdict")
    a, b = side_names(state, reads)
    of_b = replace(state.at_run(found.b.run_id, found.b.attempt), a=a, b=b)
    rows = [tuple(_rank_cells(each, found, of_b)) for each in found.ranks[:MOST_RANKS]]
    left_out = len(found.ranks) - MOST_RANKS
    more = [dmc.Text(f"{left_out:,} more ranks are not listed", size="sm", c="dimmed")] if left_out > 0 else []
    return panel("Ranks that differ", dmc.Stack([table(names, rows, min_width_px=560), *more], gap="xs"))


def _rank_cells(each: RankChange, found: Comparison, of_b: ViewState) -> Iterator[object]:
    """The cells of the row of a rank. ``of_b``: a view of B's run."""
    steps = StepRange(found.b.window.first_step, found.b.window.last_step)
    chosen = of_b.at_steps(steps).at_stage(each.worst)
    yield dcc.Link(f"rank {each.rank}", href=timeline_of(chosen, each.rank, None).search())
    yield each.hosts
    yield ", ".join(f"{stage.label} {ratio - 1:+.1%}" for stage, ratio in each.stages.items())
    yield f"{each.share_of_step:+.2%}"
    yield _verdict(str(each.verdict))


def _draw_steps(state: ViewState, reads: Reads) -> go.Figure | None:
    found = _found(state, reads)
    if found is None:
        return None
    a_events, b_events = (run_events(side, reads) for side in _sides(found, state, reads))
    return step_times(found, a_events, b_events, keep=_keep(found))


def _draw_loss(state: ViewState, reads: Reads) -> go.Figure | None:
    found = _found(state, reads)
    if found is None:
        return None
    runs = (reads.newest(ViewState(run=side.run_id, attempt=side.attempt)) for side in (found.a, found.b))
    a, b = (reads.series(run).get("loss") for run in runs)
    return loss_curves(found, a, b, keep=_keep(found))


def _draw_ranks(state: ViewState, reads: Reads) -> go.Figure | None:
    found = _found(state, reads)
    return None if found is None else rank_ratios(found, keep=_keep(found))


def _keep(found: Comparison) -> str:
    return f"{found.a.label} {found.b.label}"


def _sides(found: Comparison, state: ViewState, reads: Reads) -> Iterator[Shown]:
    """The compared steps of A and of B."""
    for side in (found.a, found.b):
        steps = StepRange(int(side.steps[0]), int(side.steps[-1]))
        yield shown_steps(replace(state, run=side.run_id, attempt=side.attempt), steps, reads)


def _after_click(state: ViewState, reads: Reads, point: Mapping[str, Any]) -> ViewState:
    """The view after a click on an event of A or B: the step of the event. Both sides stay."""
    found = _found(state, reads)
    a, b = side_names(state, reads)
    for side in _sides(found, state, reads) if found else ():
        there = after_event(state, side, reads, point)
        if there != state:
            return replace(there, a=a, b=b)
    return state


def _freshness(state: ViewState, reads: Reads) -> list[object]:
    """Values that change with the comparison, and with the report of B: its suspect determines the default rank."""
    found = comparison_freshness(state, reads)
    with suppress(RankscopeError):
        found += reads.report_freshness(compared_steps(state, reads)[1].timeline(state))
    return found


PAGE = Page(
    title="Compare",
    skeleton=skeleton,
    regions={
        "compare-controls": Region(draw=_draw_controls, live=False),
        "compare-links": Region(draw=_draw_links, live=False, quiet=True),
        "compare-says": Region(draw=_draw_says),
        "compare-stages": Region(draw=_draw_stages, quiet=True),
        "compare-named": Region(draw=_draw_named, quiet=True),
        "two-steps-controls": Region(draw=two_steps.draw_controls, live=False, quiet=True),
        "two-steps-links": Region(draw=two_steps.draw_links, live=False, quiet=True),
        "two-steps-says": Region(draw=two_steps.draw_says, quiet=True),
        **{name: Region(draw=draw, quiet=True) for name, draw in two_steps.TITLES.items()},
    },
    charts={
        "compare-steps": Chart(draw=_draw_steps, after_click=_after_click),
        "compare-loss": Chart(draw=_draw_loss),
        "compare-ranks": Chart(draw=_draw_ranks),
    },
    canvases=two_steps.CANVASES,
    control_values=control_values,
    preload=_found,
    freshness=_freshness,
)
