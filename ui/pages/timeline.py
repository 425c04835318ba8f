"""The timeline: every span of a step on the ranks of a group; click a span for all about it."""

from dataclasses import dataclass, replace

import dash_mantine_components as dmc
import numpy as np
from dash import html
from dash.development.base_component import Component

from telemetry.topology import AXES
from ui.defaults import Rows, chosen_rows, chosen_step, slowest_step, suspects, typical_step
from ui.figures.step_shares import gaps_by_rank, shares_by_rank
from ui.figures.timeline import Drawn, fit, step_timeline
from ui.pages.controls import bar, labelled, link_button, step_input
from ui.pages.graphs import graph
from ui.pages.interface import Page, Region, control_id, region_id
from ui.pages.span_details import span_details, where_the_step_went
from ui.pages.states import loading, notice
from ui.reads import Reads
from ui.records import RunFacts
from ui.view_state import Group, ViewState
from ui.wording import count, duration

GROUP_NAMES = {Group.PP: "Pipeline", Group.DP: "Data", Group.TP: "Tensor", Group.ALL: "All ranks"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What the page is about, every open choice made."""

    facts: RunFacts
    rows: Rows
    step: int
    suspects: tuple[int, ...]


def skeleton() -> Component:
    beside = html.Div(
        [
            dmc.Paper(html.Div(loading(520), id=region_id("spans")), withBorder=True, p="md"),
            dmc.Paper(html.Div(loading(240), id=region_id("details")), withBorder=True, p="md"),
        ],
        className="beside",
    )
    controls = dmc.Paper(html.Div(loading(56), id=region_id("timeline-controls")), withBorder=True, p="sm")
    return dmc.Stack([controls, beside], gap="md")


def draw_controls(state: ViewState, reads: Reads) -> Component:
    """Group, rank, step, and the way to the step before and after."""
    scene = _scene(state, reads)
    groups = [{"value": group, "label": name} for group, name in GROUP_NAMES.items() if _has(group, scene.facts)]
    ranks = [
        {"value": str(rank), "label": f"{rank} · {scene.facts.topology.place(rank)}"}
        for rank in range(scene.facts.topology.world_size)
    ]
    shown = {"group": scene.rows.group, "rank": str(scene.rows.rank), "step": "" if state.step is None else state.step}
    return bar(
        labelled("Group", dmc.SegmentedControl(id=control_id("group"), value=scene.rows.group, data=groups)),
        dmc.Select(
            label="of rank",
            id=control_id("rank"),
            value=str(scene.rows.rank),
            data=ranks,
            searchable=True,
            allowDeselect=False,
            limit=200,
            w=170,
        ),
        step_input("Step", "step", shown["step"], f"{scene.step}", scene.facts),
        *_steps_around(state, scene),
        shown=shown,
    )


def draw_spans(state: ViewState, reads: Reads) -> Component:
    """The picture, and what it does not show."""
    scene = _scene(state, reads)
    spans = reads.spans(scene.facts.summary, scene.step, scene.rows.ranks)
    if not len(spans):
        return notice("No span recorded", f"None of these ranks recorded a span in step {scene.step}.")
    drawn = fit(spans)
    names = {rank: _row_name(scene.facts, rank) for rank in scene.rows.ranks}
    keep = f"{scene.facts.summary.run_id}/{scene.rows.ranks[:2]}/{scene.rows.group}"
    figure = step_timeline(drawn.spans, gaps_by_rank(spans), names, scene.suspects, state.span, keep=keep)
    title = _title(scene)
    return html.Div(
        [
            dmc.Title(title, order=2, className="panel-title"),
            *[dmc.Text(note, size="sm", c="orange") for note in _left_out(drawn, scene.rows)],
            graph("timeline", figure, label=f"{title}: {count(len(drawn.spans), 'span')}"),
        ]
    )


def draw_details(state: ViewState, reads: Reads) -> Component:
    """The chosen span, else where each rank's step went."""
    scene = _scene(state, reads)
    run = scene.facts.summary
    spans = reads.spans(run, scene.step, scene.rows.ranks)
    if state.span is None:
        return where_the_step_went(shares_by_rank(spans), gaps_by_rank(spans), scene.suspects)
    chosen = spans.where((spans.rank == state.span.rank) & (spans.seq == state.span.seq))
    if not len(chosen):
        return notice(
            "That span is not here",
            f"Step {scene.step} of these ranks holds no record {state.span.rank}-{state.span.seq}.",
        )
    origin_ns = int(spans.start_ns.min())
    return span_details(chosen, reads.same_work(scene.facts, chosen), origin_ns, scene.facts, state)


def _scene(state: ViewState, reads: Reads) -> Scene:
    facts = reads.facts(state)
    report = reads.report(facts.summary)
    rows = chosen_rows(state, facts, report)
    return Scene(facts=facts, rows=rows, step=chosen_step(state, facts), suspects=suspects(report))


def _steps_around(state: ViewState, scene: Scene) -> list[Component]:
    stored = scene.facts.steps.step
    at = int(np.searchsorted(stored, scene.step))
    links = []
    if at > 0:
        links.append(link_button("← Previous", replace(state, step=int(stored[at - 1]), span=None)))
    if at + 1 < len(stored):
        links.append(link_button("Next →", replace(state, step=int(stored[at + 1]), span=None)))
    links.append(link_button("Typical", replace(state, step=typical_step(scene.facts), span=None)))
    links.append(link_button("Slowest", replace(state, step=slowest_step(scene.facts), span=None)))
    links.append(link_button("Newest", replace(state, step=None, span=None)))
    return links


def _has(group: Group, facts: RunFacts) -> bool:
    return group is Group.ALL or any(axis == group.value and getattr(facts.topology, axis) > 1 for axis in AXES)


def _title(scene: Scene) -> str:
    which = (
        "all ranks"
        if scene.rows.group is Group.ALL
        else f"{GROUP_NAMES[scene.rows.group].lower()} group of rank {scene.rows.rank}"
    )
    wall = scene.facts.steps.duration_ns[scene.facts.steps.step == scene.step]
    return f"Step {scene.step}, {which}" + (f": {duration(float(wall[0]))}" if len(wall) else "")


def _row_name(facts: RunFacts, rank: int) -> str:
    return f"{facts.topology.place(rank)} · {facts.hosts[rank] or 'unknown'}"


def _left_out(drawn: Drawn, rows: Rows) -> list[str]:
    notes = []
    if rows.num_left_out:
        notes.append(
            f"{count(rows.num_left_out, 'rank')} of the group not shown: choose another rank to see its neighbours."
        )
    if drawn.num_hidden:
        longest = duration(drawn.longest_hidden_ns)
        notes.append(
            f"{count(drawn.num_hidden, 'span')} not drawn, the shortest (at most {longest}): choose a smaller group."
        )
    return notes


PAGE = Page(
    title="Timeline",
    skeleton=skeleton,
    regions={
        "timeline-controls": Region(draw=draw_controls, live=False),
        "spans": Region(draw=draw_spans),
        "details": Region(draw=draw_details),
    },
)
