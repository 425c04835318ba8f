"""The timeline page: every span of a step on the ranks of a group.

Beside it are the details of the chosen span or the statistics of the marked area; trace files for Perfetto are links.
"""

import hashlib
from dataclasses import replace

import dash_mantine_components as dmc
import numpy as np
from dash import dcc, html
from dash.development.base_component import Component

from diagnose.ranges import fold_ranks
from diagnose.trace.export import Format, can_write
from telemetry.errors import UsageError
from ui.dashboard.data import Reads
from ui.dashboard.defaults import Rows, suspects
from ui.dashboard.figures.style import STAGE_COLOURS
from ui.dashboard.pages.controls import titled
from ui.dashboard.pages.interface import Canvas, Page, Region, region_id
from ui.dashboard.pages.panels import canvas_panel, loading, notice
from ui.dashboard.pages.timeline.area import StageStatistics, ranks_within, statistics
from ui.dashboard.pages.timeline.export import command, num_spans, same_work, spans_left_out, trace_address
from ui.dashboard.pages.timeline.ideal import draw_ideal, known_strip
from ui.dashboard.pages.timeline.ideal_strip import ideal_duration_ns
from ui.dashboard.pages.timeline.selection import (
    GROUP_NAMES,
    StepSelection,
    aligned,
    control_values,
    displayed,
    draw_controls,
    draw_links,
    drawn,
    selection,
    spans,
)
from ui.dashboard.pages.timeline.span_details import span_details, where_the_step_went
from ui.dashboard.pages.timeline.spans_buffer import Drawn, fit, spans_buffer
from ui.dashboard.pages.timeline.step_shares import gaps_by_rank, shares_by_rank
from ui.dashboard.records import RunFacts
from ui.dashboard.view_state import Area, Group, StepRange, View, ViewState
from ui.dashboard.wording import count, duration, ranks_in_words

HEADINGS = ("stage", "count", "total", "mean", "longest")


def area_details(area: Area, ranks: tuple[int, ...], found: list[StageStatistics], state: ViewState) -> Component:
    """``ranks``: those within the area."""
    close = dcc.Link("Clear", href=replace(state, area=None).search(), className="close")
    where = f"{count(len(ranks), 'rank')} ({ranks_in_words(sorted(ranks), counted=False)})"
    when = f"{duration(area.last_ns - area.first_ns)} from {duration(area.first_ns)}"
    return dmc.Stack(
        [
            html.Div([html.H2("Marked area", className="panel-title"), close], className="details-head"),
            dmc.Text(
                f"{where}, {when}. A span that crosses its edge counts only with the part inside.",
                size="xs",
                c="dimmed",
            ),
            _table(found) if found else dmc.Text("The area contains no span.", size="sm"),
        ],
        gap="xs",
        mb="md",
    )


def _table(found: list[StageStatistics]) -> Component:
    head = html.Thead(html.Tr([html.Th(name, scope="col") for name in HEADINGS]))
    return html.Table([head, html.Tbody([_row(one) for one in found])], className="shares area-statistics")


def _row(one: StageStatistics) -> Component:
    swatch = html.Span(className="swatch", style={"background": STAGE_COLOURS[one.stage]})
    times = (one.total_ns, one.mean_ns, one.longest_ns)
    cells = [f"{one.count:,}", *(duration(ns) for ns in times)]
    return html.Tr([html.Td([swatch, one.stage.label]), *(html.Td(cell) for cell in cells)])


AROUND = 10
"""Steps of the wider file."""
HOW = (
    "Choose “Open trace file” on ui.perfetto.dev, or on your own copy of it. Perfetto reads the file inside your "
    "browser and uploads nothing."
)


def draw_trace(state: ViewState, reads: Reads) -> Component:
    """Folded until somebody opens it."""
    shown = selection(state, reads)
    ranks = fold_ranks(shown.rows.ranks)
    windows = dict.fromkeys((StepRange(shown.step, shown.step), _around(shown)))
    offers = [_offer(shown, steps, reads) for steps in windows]
    return html.Details(
        [
            html.Summary("Open in Perfetto", className="button"),
            html.Div(
                [
                    html.P(f"Trace file of ranks {ranks}, with the transfers between them as arrows:"),
                    html.Ul(offers),
                    html.P(HOW),
                ]
            ),
        ],
        className="trace-files",
    )


def _around(shown: StepSelection) -> StepRange:
    """The step among its stored neighbours."""
    stored = shown.facts.steps.step
    at = int(np.searchsorted(stored, shown.step))
    first = max(0, min(at - AROUND // 2, len(stored) - AROUND))
    return StepRange(int(stored[first]), int(stored[min(first + AROUND, len(stored)) - 1]))


def _offer(shown: StepSelection, steps: StepRange, reads: Reads) -> Component:
    named = f"step {steps.first}" if steps.first == steps.last else f"steps {steps.first} to {steps.last}"
    try:
        spans = num_spans(shown.facts, steps, shown.rows, reads)
    except UsageError as error:
        whole = html.Code(command(shown.facts, steps, shown.rows))
        return html.Li([f"{named}: {error.message}. This command writes all of them: ", whole])
    run, rows = shown.facts.summary, shown.rows
    exactly = ViewState(
        view=View.TIMELINE,
        run=run.run_id,
        attempt=run.attempt,
        steps=steps,
        group=rows.group,
        rank=rows.rank,
        step=shown.step,
    )
    links = [html.A("Chrome JSON", href=trace_address(exactly, Format.JSON))]
    if can_write(Format.PROTOBUF):
        links += [", ", html.A("Perfetto protobuf", href=trace_address(exactly, Format.PROTOBUF))]
    return html.Li([f"{named} ({count(spans, 'span')}): ", *links])


def skeleton() -> Component:
    title = html.Div(loading(28), id=region_id("spans-title"))
    details = [html.Div(id=region_id("area")), html.Div(loading(240), id=region_id("details"))]
    beside = html.Div(
        [
            canvas_panel("timeline", title, label="spans of each rank over the step"),
            html.Aside(details, className="panel", **{"aria-label": "details"}),
        ],
        className="beside",
    )
    controls = html.Section(
        [
            html.Div(loading(60), id=region_id("timeline-controls")),
            html.Div(id=region_id("timeline-links"), className="links"),
            html.Div(id=region_id("trace")),
        ],
        className="panel controls",
    )
    told = [html.Div(id=region_id(name)) for name in ("timeline-problem", "ideal")]
    return dmc.Stack([controls, *told, beside], gap="md")


def draw_problem(state: ViewState, reads: Reads) -> Component | None:
    """Nothing, unless there is nothing to show."""
    shown = selection(state, reads)
    if len(spans(shown, reads)):
        return None
    return notice("No span recorded", f"None of these ranks recorded a span in step {shown.step}.")


def draw_title(state: ViewState, reads: Reads) -> Component:
    """What the picture shows, and what it leaves out."""
    shown = selection(state, reads)
    run, rows = shown.facts.summary, shown.rows
    exactly = replace(state, run=run.run_id, attempt=run.attempt, group=rows.group, rank=rows.rank, step=shown.step)
    unasked = spans_left_out(reads, run, shown.step, rows.ranks)
    said = [dmc.Text(note, size="sm", className="left-out") for note in _left_out(drawn(shown, reads), rows, unasked)]
    if note := aligned(shown, reads).note:
        clock = ViewState(view=View.CLOCK, run=run.run_id, attempt=run.attempt)
        words = [note, " ", dcc.Link("Clocks", href=clock.search())]
        said.insert(0, dmc.Text(words, size="sm", className="left-out"))
    return html.Div([titled(_title(shown), exactly), *said])


def spans_key(state: ViewState, reads: Reads) -> str:
    """Tells one picture's spans from another's: a step that has ended stays as it is while its run goes on."""
    shown = selection(state, reads)
    one_clock, run = aligned(shown, reads), shown.facts.summary
    content = hashlib.blake2s(one_clock.note.encode(), digest_size=16)
    for column in (one_clock.spans.seq, one_clock.spans.start_ns, one_clock.spans.duration_ns):
        content.update(column.tobytes())
    if strip := known_strip(state, shown, reads):
        content.update(strip.operations.begin_ns.tobytes() + repr((strip.ideal_ns, strip.lost_ns)).encode())
    return "/".join(map(str, (run.run_id, run.attempt, shown.step, shown.rows.ranks, content.hexdigest())))


def draw_spans(state: ViewState, reads: Reads) -> dict[str, object] | None:
    """The picture."""
    shown = selection(state, reads)
    one_clock = aligned(shown, reads)
    if not len(one_clock.spans):
        return None
    names = {rank: _row_name(shown.facts, rank) for rank in shown.rows.ranks}
    fitting = replace(one_clock, spans=fit(one_clock.spans).spans)
    strip = known_strip(state, shown, reads)
    return spans_buffer(fitting, gaps_by_rank(one_clock.spans), names, shown.step, shown.facts, strip)


def marked_ranks(state: ViewState, reads: Reads) -> tuple[int, ...]:
    """The suspects, once they are known."""
    return suspects(reads.reports.of(reads.newest(state)))


def draw_area(state: ViewState, reads: Reads) -> Component | None:
    """The statistics of the area that is marked."""
    if state.area is None:
        return None
    shown = selection(state, reads)
    ranks = ranks_within(state.area, displayed(state, shown.rows))
    return area_details(state.area, ranks, statistics(spans(shown, reads), state.area, ranks), state)


def draw_details(state: ViewState, reads: Reads) -> Component:
    """The chosen span, else where each rank's step went."""
    shown = selection(state, reads)
    held = spans(shown, reads)
    if state.span is None:
        return where_the_step_went(shares_by_rank(held), gaps_by_rank(held), marked_ranks(state, reads))
    chosen = held.where((held.rank == state.span.rank) & (held.seq == state.span.seq))
    if not len(chosen):
        key = f"{state.span.rank}-{state.span.seq}"
        return notice("Span not found", f"These ranks have no record {key} in step {shown.step}.")
    origin_ns = int(held.start_ns.min())
    strip = known_strip(state, shown, reads)
    ideal_ns = ideal_duration_ns(strip, chosen, held, shown.facts) if strip else None
    return span_details(chosen, same_work(reads, shown.facts, chosen), origin_ns, shown.facts, state, ideal_ns)


def _title(shown: StepSelection) -> str:
    wall = shown.facts.steps.duration_ns[shown.facts.steps.step == shown.step]
    return f"Step {shown.step}, {_which(shown.rows)}" + (f": {duration(float(wall[0]))}" if len(wall) else "")


def _which(rows: Rows) -> str:
    """``pipeline group of rank 5``, ``all ranks``, ``ranks 32-95``."""
    if rows.group is not Group.ALL:
        return f"{GROUP_NAMES[rows.group].lower()} group of rank {rows.rank}"
    return f"ranks {ranks_in_words(rows.ranks)}" if rows.num_left_out else "all ranks"


def _row_name(facts: RunFacts, rank: int) -> str:
    return f"{facts.topology.describe(rank)} · {facts.hosts[rank] or 'unknown'}"


def _left_out(fitting: Drawn, rows: Rows, num_unasked: int) -> list[str]:
    notes = []
    if num_unasked:
        notes.append(f"{count(num_unasked, 'span')} not shown: the shortest spans of very full lanes.")
    if rows.num_left_out:
        notes.append(
            f"{count(rows.num_left_out, 'rank')} of the {'run' if rows.group is Group.ALL else 'group'} not shown: "
            "choose another rank to see its neighbours."
        )
    if fitting.num_hidden:
        longest = duration(fitting.longest_hidden_ns)
        notes.append(
            f"{count(fitting.num_hidden, 'span')} not drawn, the shortest (at most {longest}): choose a smaller group."
        )
    return notes


PAGE = Page(
    skeleton=skeleton,
    regions={
        "timeline-controls": Region(draw=draw_controls, live=False),
        "timeline-links": Region(draw=draw_links, quiet=True),
        "timeline-problem": Region(draw=draw_problem),
        "trace": Region(draw=draw_trace, quiet=True),
        "ideal": Region(draw=draw_ideal),
        "spans-title": Region(draw=draw_title, quiet=True),
        "area": Region(draw=draw_area, quiet=True),
        "details": Region(draw=draw_details, quiet=True),
    },
    canvases={"timeline": Canvas(key=spans_key, draw=draw_spans, suspects=marked_ranks)},
    control_values=control_values,
    ahead=spans_key,
)
