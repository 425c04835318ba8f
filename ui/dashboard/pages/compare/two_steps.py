"""A step of A and a step of B on one time axis, and the difference between them. Zoom and pins are common to both.

A  step 30   |== F0 ==|== B0 ==|
B  step 52   |== F0 ==|===== B0 =====|
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import dash_mantine_components as dmc
import numpy as np
from dash import html
from dash.development.base_component import Component

from diagnose.report.comparison_report import signed
from ui.dashboard.data import Reads
from ui.dashboard.data.compared_steps import StepOfSide, compared_steps
from ui.dashboard.defaults import groups_of
from ui.dashboard.pages.controls import bar, link_button, number_input, switch
from ui.dashboard.pages.interface import Canvas, region_id
from ui.dashboard.pages.panels import canvas_panel, heading, table
from ui.dashboard.pages.timeline.picture import draw_spans, marked_ranks, spans_key
from ui.dashboard.pages.timeline.row_order import shares_of_step
from ui.dashboard.pages.timeline.selection import StepSelection, aligned, selection
from ui.dashboard.pages.timeline.step_controls import GROUP_NAMES
from ui.dashboard.pages.timeline.step_shares import StepShares
from ui.dashboard.view_state import ViewState
from ui.dashboard.wording import capitalized, count, duration

MEANINGS = (
    "Mean of the shown ranks of each side. Each moment of a step counts in one row. compute excludes waiting, as on "
    "the heat map. tp, cp, ep, pp and dp are the time inside collectives and transfers, including waiting."
)
WHOLE = "step, mean of these ranks"
"""The step time of the sentence is that of all ranks."""
LEAST_PART = 0.0005
"""A part of the step that is smaller on both sides has no row."""
LEAST_CHANGE = 0.02
"""A smaller change of the compute time of a rank is not named."""


def skeleton() -> list[Component]:
    """The panels of the two steps."""
    regions = [html.Div(id=region_id(f"two-steps-{name}"), className=name) for name in ("controls", "links", "says")]
    canvases = [
        canvas_panel(f"step-{side}", html.Div(id=region_id(f"step-{side}-title")), label=f"spans of the step of {side}")
        for side in ("a", "b")
    ]
    return [html.Section([heading("Two steps on one time axis"), *regions], className="panel two-steps"), *canvases]


def control_values(state: ViewState, reads: Reads) -> dict[str, object]:
    """The steps, and the group and rank of both timelines."""
    shown = selection(_shown(1, state, reads)[1], reads)
    return {
        "a-step": "" if state.timeline.a_step is None else state.timeline.a_step,
        "step": "" if state.step is None else state.step,
        "group": shown.rows.group.value,
        "rank": shown.rows.rank if state.rank is None else state.rank,
    }


def draw_controls(state: ViewState, reads: Reads) -> Component:
    values, (a, b) = control_values(state, reads), compared_steps(state, reads)
    groups = {group.value: GROUP_NAMES[group] for group in groups_of(b.facts.topology)}
    return bar(
        number_input("Step of A", "a-step", values["a-step"], _default(a)),
        number_input("Step of B", "step", values["step"], _default(b)),
        switch("Group", "group", values["group"], groups),
        number_input("Rank", "rank", values["rank"], "0"),
    )


def _default(side: StepOfSide) -> str:
    return f"{side.step}" if not side.is_typical else "typical"


def draw_links(state: ViewState, reads: Reads) -> Component:
    """Links to typical and slow steps of both sides."""
    a, b = compared_steps(state, reads)
    at_a = {f"{kind} step of A": step for kind, step in (("Typical", a.typical), ("Slowest", a.slowest))}
    at_b = {f"{kind} step of B": step for kind, step in (("Typical", b.typical), ("Slowest", b.slowest))}
    links = [link_button(name, _at_a_step(state, step)) for name, step in at_a.items()]
    links += [link_button(name, state.at_step(step)) for name, step in at_b.items()]
    return html.Div(links, className="links")


def _at_a_step(state: ViewState, step: int) -> ViewState:
    return replace(state, timeline=replace(state.timeline, a_step=step))


def draw_says(state: ViewState, reads: Reads) -> Component:
    """The difference of the two steps: their times, and their parts over the shown ranks."""
    a, b = compared_steps(state, reads)
    shares = [shares_of_step(selection(_shown(index, state, reads)[1], reads), reads) for index in range(2)]
    lines = [dmc.Text(sentence(a, b), fw=600), *(dmc.Text(note, className="left-out") for note in _notes(a, b))]
    if all(shares):
        lines += [
            *(dmc.Text(text, size="sm") for text in _changed_rank(*shares)),
            table(("Part of the step", "A", "B", "Change", "Of step of A"), _rows(*shares), min_width_px=520),
            dmc.Text(MEANINGS, size="sm", c="dimmed"),
        ]
    return dmc.Stack(lines, gap="xs")


def sentence(a: StepOfSide, b: StepOfSide) -> str:
    """The two step times in words.

    ``Step 52 of B takes 1.93 s. Step 30 of A, a typical step, takes 1.25 s: B takes 54.4% longer.``
    """
    a_ns, b_ns = a.wall_ns, b.wall_ns
    if a_ns is None or b_ns is None:
        return f"{capitalized(b.words)} is compared with {a.words}. A step that is not complete has no step time."
    change = b_ns / a_ns - 1
    than = f"B takes {abs(change):.1%} {'longer' if change > 0 else 'less'}" if abs(change) >= 5e-4 else "equal times"
    took = [
        f"{capitalized(each.words)}{',' * each.is_typical} takes {duration(ns)}" for each, ns in ((b, b_ns), (a, a_ns))
    ]
    return f"{took[0]}. {took[1]}: {than}."


def _notes(*sides: StepOfSide) -> Iterator[str]:
    for side in sides:
        if side.wanted not in (None, side.step):
            yield f"Step {side.wanted} is not stored in {side.name}. Step {side.step} is shown instead."


def _rows(a: Sequence[StepShares], b: Sequence[StepShares]) -> Iterator[tuple[object, ...]]:
    """The rows of the table, the whole step last."""
    parts = [_means(shares) for shares in (a, b)]
    for name in (name for name in parts[0] if any(of_side[name] > LEAST_PART * of_side["step"] for of_side in parts)):
        yield _row(name, parts[0][name], parts[1][name], parts[0]["step"])


def _means(shares: Sequence[StepShares]) -> dict[str, float]:
    """The mean of each part over the ranks."""
    by_rank = [share.by_name() | {"step": share.step_ns} for share in shares]
    return {name: float(np.mean([parts[name] for parts in by_rank])) for name in by_rank[0]}


def _row(name: str, a_ns: float, b_ns: float, step_ns: float) -> tuple[object, ...]:
    change = b_ns - a_ns
    sign = "+" if change > 0 else "-" if change < 0 else ""
    times = (duration(a_ns), duration(b_ns), f"{sign}{duration(abs(change))}", signed(change / step_ns))
    return WHOLE if name == "step" else name, *(html.Span(time, className="whole-word") for time in times)


def _changed_rank(a: Sequence[StepShares], b: Sequence[StepShares]) -> Iterator[str]:
    """The rank whose compute time differs most, if it does."""
    before = {share.rank: share.compute_ns for share in a if share.basis is not None}
    after = {share.rank: share.compute_ns for share in b if share.basis is not None and share.rank in before}
    if not after:
        return
    rank = max(after, key=lambda rank: abs(after[rank] - before[rank]))
    change = after[rank] / max(1, before[rank]) - 1
    if abs(change) >= LEAST_CHANGE:
        times = f"{duration(before[rank])} in A, {duration(after[rank])} in B ({change:+.1%})"
        yield f"Of {count(len(after), 'rank')}, the compute time of rank {rank} changed most: {times}."


def _shown(index: int, state: ViewState, reads: Reads) -> tuple[StepOfSide, ViewState]:
    """A side, and the timeline of its step. Without a rank in the address, both show the default rank of B."""
    sides = compared_steps(state, reads)
    if state.rank is None:
        state = replace(state, rank=selection(sides[1].timeline(state), reads).rows.rank)
    return sides[index], sides[index].timeline(state)


def _length_ns(shown: StepSelection, reads: Reads) -> int:
    spans = aligned(shown, reads).spans
    return int(spans.end_ns.max() - spans.start_ns.min()) if len(spans) else 0


def _longest_ns(state: ViewState, reads: Reads) -> int:
    """The length of the common time axis."""
    return max(_length_ns(selection(_shown(index, state, reads)[1], reads), reads) for index in range(2))


def _key(index: int, state: ViewState, reads: Reads) -> str:
    return f"{spans_key(_shown(index, state, reads)[1], reads)}/{_longest_ns(state, reads)}"


def _draw(index: int, state: ViewState, reads: Reads) -> dict[str, object] | None:
    return draw_spans(_shown(index, state, reads)[1], reads, least_ns=_longest_ns(state, reads))


def _marked(index: int, state: ViewState, reads: Reads) -> tuple[int, ...]:
    return marked_ranks(_shown(index, state, reads)[1], reads)


def _draw_title(index: int, state: ViewState, reads: Reads) -> Component:
    """The side, its step, and a link to its timeline."""
    side, timeline = _shown(index, state, reads)
    wall = "" if side.wall_ns is None else f": {duration(side.wall_ns)}"
    title = html.H2(f"{side.name}: {side.label}, step {side.step}{wall}", className="panel-title")
    there = replace(timeline, timeline=state.timeline, ideal=state.ideal)
    return html.Div([title, link_button(f"Show timeline of {side.name}", there, name="small")], className="titled")


TITLES = {"step-a-title": partial(_draw_title, 0), "step-b-title": partial(_draw_title, 1)}
CANVASES = {
    f"step-{side}": Canvas(
        key=partial(_key, index), draw=partial(_draw, index), suspects=partial(_marked, index), chooses=False
    )
    for index, side in enumerate(("a", "b"))
}
