"""The heading of the picture: steps and ranks, the precision of the clocks, and what is left out."""

from dataclasses import replace

import dash_mantine_components as dmc
from dash import dcc, html
from dash.development.base_component import Component

from ui.dashboard.data import Reads
from ui.dashboard.defaults import Rows
from ui.dashboard.pages.controls import titled
from ui.dashboard.pages.timeline.selection import (
    MAX_SPANS,
    FittingSpans,
    OneClock,
    StepSelection,
    aligned,
    fit,
    num_left_out,
    selection,
    spans,
)
from ui.dashboard.pages.timeline.step_controls import GROUP_NAMES
from ui.dashboard.view_state import Group, View, ViewState
from ui.dashboard.wording import count, duration, ranks_text


def draw_title(state: ViewState, reads: Reads) -> Component:
    shown = selection(state, reads)
    run, rows = shown.facts.summary, shown.rows
    exactly = replace(state, run=run.run_id, attempt=run.attempt, group=rows.group, rank=rows.rank, step=shown.step)
    warnings = [
        *_other_group(state, rows),
        *_left_out(
            fit(spans(shown, reads)), rows, num_left_out(reads, run, shown.steps.first, rows.ranks, shown.steps.last)
        ),
        *_fewer_steps(state, shown),
    ]
    lines = [dmc.Text(warning, size="sm", className="left-out") for warning in warnings]
    return html.Div([titled(_title(shown), exactly), *_clock_note(aligned(shown, reads), exactly), *lines])


def _clock_note(one_clock: OneClock, exactly: ViewState) -> list[Component]:
    """A note on how well the clocks are aligned. It is a warning if a clock is not aligned, and empty for a single
    host."""
    if not one_clock.note:
        return []
    is_warning = bool(one_clock.alignment.unaligned)
    link = dcc.Link("Clocks", href=replace(exactly, view=View.CLOCK).search())
    colour = {"className": "left-out"} if is_warning else {"c": "dimmed"}
    return [dmc.Text([one_clock.note, " ", link], size="sm", **colour)]


def _other_group(state: ViewState, rows: Rows) -> list[str]:
    """A note if the run does not have the group of the address."""
    if state.group in (None, rows.group):
        return []
    name = "other replicas" if state.group is Group.DP else _name(state.group)
    return [f"group={state.group} in the address is not valid: this run has no {name}. The default is shown."]


def _title(shown: StepSelection) -> str:
    if shown.steps.first < shown.steps.last:
        unfinished = ": the last step is not complete" if shown.steps.last == shown.unfinished else ""
        return f"Steps {shown.steps.first} to {shown.steps.last}, {_which(shown.rows)}{unfinished}"
    wall = shown.facts.steps.duration_ns[shown.facts.steps.step == shown.step]
    time = duration(float(wall[0])) if len(wall) else ""
    if shown.step == shown.unfinished:
        time = "not complete"
    return f"Step {shown.step}, {_which(shown.rows)}" + (f": {time}" if time else "")


def _which(rows: Rows) -> str:
    """The ranks as text: ``pipeline group of rank 5``, ``replicas of rank 5``, ``all ranks``, ``ranks 32-95``."""
    if rows.group is not Group.ALL:
        others = f" and pinned rank{'s' * (len(rows.pinned) > 1)} {ranks_text(sorted(rows.pinned))}" * bool(rows.pinned)
        return f"{_name(rows.group)} of rank {rows.rank}{others}"
    return f"ranks {ranks_text(rows.ranks)}" if rows.num_left_out else "all ranks"


def _name(group: Group) -> str:
    """The name of a group, as on the grid page: ``pipeline group``, ``replicas``. A data group lies along one axis of
    the mesh only."""
    name = GROUP_NAMES[group].lower()
    return name if group is Group.DP else f"{name} group"


def _fewer_steps(state: ViewState, shown: StepSelection) -> list[str]:
    if state.ideal and state.timeline.num_steps > 1:
        return ["The ideal timeline shows one step."]
    if shown.num_unfit:
        number = state.timeline.num_steps - shown.num_unfit
        return [f"{number} of {state.timeline.num_steps} steps are shown: the limit is {MAX_SPANS:,} spans."]
    return []


def _left_out(fitting: FittingSpans, rows: Rows, num_unloaded: int) -> list[str]:
    notes = []
    if num_unloaded:
        notes.append(f"{count(num_unloaded, 'span')} not shown. In lanes with too many spans, the shortest are hidden.")
    if rows.num_left_out:
        notes.append(
            f"{count(rows.num_left_out, 'rank')} of the {'run' if rows.group is Group.ALL else 'group'} not shown: "
            "choose another rank to see its neighbours."
        )
    if fitting.num_hidden:
        longest = duration(fitting.longest_hidden_ns)
        notes.append(
            f"The shortest span ({longest}) is not drawn. Choose a smaller group to see it."
            if fitting.num_hidden == 1
            else f"The {count(fitting.num_hidden, 'shortest span')} (up to {longest}) are not drawn. "
            "Choose a smaller group to see them."
        )
    return notes
