"""The timeline: every span of a step on the ranks of a group; click a span for all about it."""

from dataclasses import dataclass, replace

import dash_mantine_components as dmc
import numpy as np
import plotly.graph_objects as go
from dash import html
from dash.development.base_component import Component

from telemetry.topology import AXES
from ui.defaults import Rows, chosen_rows, chosen_step, slowest_step, suspects, typical_step
from ui.figures.step_shares import gaps_by_rank, shares_by_rank
from ui.figures.timeline import Drawn, fit, step_timeline
from ui.one_clock import OneClock, on_one_clock
from ui.pages.controls import bar, link_button, number_input, switch, titled
from ui.pages.interface import Chart, Page, Region, control_id, region_id
from ui.pages.panels import chart_panel
from ui.pages.span_details import span_details, where_the_step_went
from ui.pages.states import loading, notice
from ui.reads import Reads
from ui.records import RunFacts, RunState, SpanColumns
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
    title = html.Div(loading(28), id=region_id("spans-title"))
    beside = html.Div(
        [
            chart_panel("timeline", title, label="spans of each rank over the step", height_px=480),
            html.Aside(html.Div(loading(240), id=region_id("details")), className="panel", **{"aria-label": "details"}),
        ],
        className="beside",
    )
    controls = html.Section(
        [
            html.Div(loading(60), id=region_id("timeline-controls")),
            html.Div(id=region_id("timeline-links"), className="links"),
        ],
        className="panel controls",
    )
    return dmc.Stack([controls, html.Div(id=region_id("timeline-problem")), beside], gap="md")


def control_values(state: ViewState, reads: Reads) -> dict[str, object]:
    """Group, rank and step of a view; where the address asks for what is not there, what it asked for."""
    scene = _scene(replace(state, step=None, rank=None), reads)
    rank = scene.rows.rank if state.rank is None else state.rank
    return {
        "group": (state.group or scene.rows.group).value,
        "rank": str(rank),
        "step": "" if state.step is None else state.step,
    }


def draw_controls(state: ViewState, reads: Reads) -> Component:
    """Group, rank and step."""
    shown, facts = control_values(state, reads), reads.facts(state)
    groups = {group.value: name for group, name in GROUP_NAMES.items() if _has(group, facts)}
    places = ((rank, facts.topology.place(rank)) for rank in range(facts.topology.world_size))
    return bar(
        switch("Group", "group", shown["group"], groups),
        dmc.Select(
            label="of rank",
            id=control_id("rank"),
            value=shown["rank"],
            data=[{"value": str(rank), "label": f"{rank} · {place}"} for rank, place in places],
            searchable=True,
            allowDeselect=False,
            limit=200,
            w=170,
        ),
        number_input("Step", "step", shown["step"], "newest" if facts.summary.state is RunState.LIVE else "typical"),
    )


def draw_links(state: ViewState, reads: Reads) -> Component:
    """The way to the step before and after, and to some that are telling."""
    facts = reads.facts(state)
    stored = facts.steps.step
    at = int(np.searchsorted(stored, chosen_step(state, facts)))
    steps = {"Typical": typical_step(facts), "Slowest": slowest_step(facts), "Newest": None}
    links = [link_button(name, replace(state, step=step, span=None)) for name, step in steps.items()]
    if at + 1 < len(stored):
        after = replace(state, step=int(stored[at + 1]), span=None)
        links.insert(0, link_button("Next →", after, name="step-next", title="next step: key ]"))
    if at > 0:
        before = replace(state, step=int(stored[at - 1]), span=None)
        links.insert(0, link_button("← Previous", before, name="step-previous", title="previous step: key ["))
    return html.Div(links, className="links")


def draw_problem(state: ViewState, reads: Reads) -> Component | None:
    """Nothing, unless there is nothing to show."""
    scene = _scene(state, reads)
    if len(_spans(scene, reads)):
        return None
    return notice("No span recorded", f"None of these ranks recorded a span in step {scene.step}.")


def draw_title(state: ViewState, reads: Reads) -> Component:
    """What the picture shows, and what it leaves out."""
    scene = _scene(state, reads)
    run = scene.facts.summary
    exactly = replace(state, run=run.run_id, attempt=run.attempt, group=scene.rows.group, rank=scene.rows.rank)
    aligned = _aligned(scene, reads)
    unasked = reads.spans_left_out(run, scene.step, scene.rows.ranks)
    notes = [*filter(None, [aligned.note]), *_left_out(fit(aligned.spans), scene.rows, unasked)]
    head = titled(_title(scene), replace(exactly, step=scene.step))
    return html.Div([head, *[dmc.Text(note, size="sm", className="left-out") for note in notes]])


def draw_timeline(state: ViewState, reads: Reads) -> go.Figure | None:
    """The picture."""
    scene = _scene(state, reads)
    spans = _spans(scene, reads)
    if not len(spans):
        return None
    names = {rank: _row_name(scene.facts, rank) for rank in scene.rows.ranks}
    keep = f"{scene.facts.summary.run_id}/{scene.rows.ranks[:2]}/{scene.rows.group}"
    return step_timeline(fit(spans).spans, gaps_by_rank(spans), names, scene.suspects, state.span, keep=keep)


def draw_details(state: ViewState, reads: Reads) -> Component:
    """The chosen span, else where each rank's step went."""
    scene = _scene(state, reads)
    spans = _spans(scene, reads)
    if state.span is None:
        return where_the_step_went(shares_by_rank(spans), gaps_by_rank(spans), scene.suspects)
    chosen = spans.where((spans.rank == state.span.rank) & (spans.seq == state.span.seq))
    if not len(chosen):
        key = f"{state.span.rank}-{state.span.seq}"
        return notice("That span is not here", f"Step {scene.step} of these ranks holds no record {key}.")
    origin_ns = int(spans.start_ns.min())
    return span_details(chosen, reads.same_work(scene.facts, chosen), origin_ns, scene.facts, state)


def _spans(scene: Scene, reads: Reads) -> SpanColumns:
    return _aligned(scene, reads).spans


def _aligned(scene: Scene, reads: Reads) -> OneClock:
    spans = reads.spans(scene.facts.summary, scene.step, scene.rows.ranks)
    return on_one_clock(spans, scene.facts.hosts, reads.clocks(scene.facts, scene.step))


def _scene(state: ViewState, reads: Reads) -> Scene:
    facts = reads.facts(state)
    report = reads.report(facts.summary)
    rows = chosen_rows(state, facts, report)
    return Scene(facts=facts, rows=rows, step=chosen_step(state, facts), suspects=suspects(report))


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


def _left_out(drawn: Drawn, rows: Rows, num_unasked: int) -> list[str]:
    notes = []
    if num_unasked:
        notes.append(f"{count(num_unasked, 'span')} left out: the shortest of lanes that hold thousands.")
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
    skeleton=skeleton,
    regions={
        "timeline-controls": Region(draw=draw_controls, live=False),
        "timeline-links": Region(draw=draw_links, quiet=True),
        "timeline-problem": Region(draw=draw_problem),
        "spans-title": Region(draw=draw_title, quiet=True),
        "details": Region(draw=draw_details, quiet=True),
    },
    charts={"timeline": Chart(draw=draw_timeline)},
    control_values=control_values,
)
