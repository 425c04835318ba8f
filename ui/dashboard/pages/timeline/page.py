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
from ui.dashboard.pages.timeline.ideal import draw_ideal, ideal_freshness, known_strip
from ui.dashboard.pages.timeline.ideal_strip import ideal_duration_ns
from ui.dashboard.pages.timeline.selection import (
    GROUP_NAMES,
    FittingSpans,
    StepSelection,
    aligned,
    control_values,
    displayed,
    draw_controls,
    draw_links,
    fit,
    num_left_out,
    selection,
    spans,
)
from ui.dashboard.pages.timeline.span_details import same_work, span_details, where_the_step_went
from ui.dashboard.pages.timeline.spans_buffer import spans_buffer
from ui.dashboard.pages.timeline.step_shares import (
    StageStatistics,
    gaps_by_rank,
    ranks_within,
    shares_by_rank,
    statistics,
)
from ui.dashboard.pages.timeline.trace_file import command, num_spans, trace_address
from ui.dashboard.view_state import Area, Group, StepRange, View, ViewState
from ui.dashboard.wording import count, duration, ranks_text

HEADINGS = ("stage", "count", "total", "mean", "longest")


def area_details(area: Area, ranks: tuple[int, ...], found: list[StageStatistics], state: ViewState) -> Component:
    """The statistics of a marked area. ``ranks``: those within it."""
    close = dcc.Link("Clear", href=replace(state, area=None).search(), className="close")
    where = f"{count(len(ranks), 'rank')} ({ranks_text(sorted(ranks), counted=False)})"
    when = f"{duration(area.last_ns - area.first_ns)} from {duration(area.first_ns)}"
    return dmc.Stack(
        [
            html.Div([html.H2("Marked area", className="panel-title"), close], className="details-head"),
            dmc.Text(
                f"{where}, {when}. If a span crosses the edge of the area, only its part inside is counted.",
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
    return html.Table([head, html.Tbody([_row(statistic) for statistic in found])], className="shares area-statistics")


def _row(row: StageStatistics) -> Component:
    swatch = html.Span(className="swatch", style={"background": STAGE_COLOURS[row.stage]})
    times = (duration(ns) for ns in (row.total_ns, row.mean_ns, row.longest_ns))
    return html.Tr([html.Td(cell) for cell in ([swatch, row.stage.label], f"{row.count:,}", *times)])


AROUND = 10
"""Steps of the larger trace file."""
HOW = (
    "Choose “Open trace file” on ui.perfetto.dev, or on your own copy of it. Perfetto reads the file inside your "
    "browser and uploads nothing."
)


def _draw_trace(state: ViewState, reads: Reads) -> Component:
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
    """The step and its stored neighbours."""
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
    above = [html.Div(id=region_id(name)) for name in ("timeline-problem", "ideal")]
    return dmc.Stack([controls, *above, beside], gap="md")


def _draw_problem(state: ViewState, reads: Reads) -> Component | None:
    shown = selection(state, reads)
    if len(spans(shown, reads)):
        return None
    return notice("No span recorded", f"None of these ranks recorded a span in step {shown.step}.")


def _draw_title(state: ViewState, reads: Reads) -> Component:
    shown = selection(state, reads)
    run, rows = shown.facts.summary, shown.rows
    exactly = replace(state, run=run.run_id, attempt=run.attempt, group=rows.group, rank=rows.rank, step=shown.step)
    notes: list[str | list[str | Component]] = []
    if note := aligned(shown, reads).note:
        clock = ViewState(view=View.CLOCK, run=run.run_id, attempt=run.attempt)
        notes.append([note, " ", dcc.Link("Clocks", href=clock.search())])
    notes += _left_out(fit(spans(shown, reads)), rows, num_left_out(reads, run, shown.step, rows.ranks))
    lines = [dmc.Text(note, size="sm", className="left-out") for note in notes]
    return html.Div([titled(_title(shown), exactly), *lines])


def spans_key(state: ViewState, reads: Reads) -> str:
    """Identifies the spans of a picture. It depends on their content: a completed step does not change in a live
    run."""
    shown = selection(state, reads)
    one_clock, run = aligned(shown, reads), shown.facts.summary
    content = hashlib.blake2s(one_clock.note.encode(), digest_size=16)
    for column in (one_clock.spans.seq, one_clock.spans.start_ns, one_clock.spans.duration_ns):
        content.update(column.tobytes())
    if strip := known_strip(state, shown, reads):
        content.update(strip.operations.begin_ns.tobytes() + repr((strip.ideal_ns, strip.lost_ns)).encode())
    return "/".join(map(str, (run.run_id, run.attempt, shown.step, shown.rows.ranks, content.hexdigest())))


def _draw_spans(state: ViewState, reads: Reads) -> dict[str, object] | None:
    shown = selection(state, reads)
    one_clock = aligned(shown, reads)
    if not len(one_clock.spans):
        return None
    facts = shown.facts
    names = {rank: f"{facts.place(rank)} · {facts.hosts[rank] or 'unknown'}" for rank in shown.rows.ranks}
    fitting = replace(one_clock, spans=fit(one_clock.spans).spans)
    strip = known_strip(state, shown, reads)
    return spans_buffer(fitting, gaps_by_rank(one_clock.spans), names, shown.step, facts, strip)


def marked_ranks(state: ViewState, reads: Reads) -> tuple[int, ...]:
    """The suspects. Empty until the detectors are ready."""
    return suspects(reads.reports.of(reads.newest(state)))


def _draw_area(state: ViewState, reads: Reads) -> Component | None:
    if state.area is None:
        return None
    shown = selection(state, reads)
    ranks = ranks_within(state.area, displayed(state, shown.rows))
    return area_details(state.area, ranks, statistics(spans(shown, reads), state.area, ranks), state)


def _draw_details(state: ViewState, reads: Reads) -> Component:
    shown = selection(state, reads)
    loaded = spans(shown, reads)
    if state.span is None:
        return where_the_step_went(shares_by_rank(loaded), gaps_by_rank(loaded), marked_ranks(state, reads))
    chosen = loaded.where((loaded.rank == state.span.rank) & (loaded.seq == state.span.seq))
    if not len(chosen):
        key = f"{state.span.rank}-{state.span.seq}"
        return notice("Span not found", f"Step {shown.step} of these ranks has no span with the number {key}.")
    origin_ns = int(loaded.start_ns.min())
    strip = known_strip(state, shown, reads)
    ideal_ns = ideal_duration_ns(strip, chosen, loaded, shown.facts) if strip else None
    return span_details(chosen, same_work(reads, shown.facts, chosen), origin_ns, shown.facts, state, ideal_ns)


def _title(shown: StepSelection) -> str:
    wall = shown.facts.steps.duration_ns[shown.facts.steps.step == shown.step]
    return f"Step {shown.step}, {_which(shown.rows)}" + (f": {duration(float(wall[0]))}" if len(wall) else "")


def _which(rows: Rows) -> str:
    """``pipeline group of rank 5``, ``all ranks``, ``ranks 32-95``."""
    if rows.group is not Group.ALL:
        return f"{GROUP_NAMES[rows.group].lower()} group of rank {rows.rank}"
    return f"ranks {ranks_text(rows.ranks)}" if rows.num_left_out else "all ranks"


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


PAGE = Page(
    title="Timeline",
    skeleton=skeleton,
    regions={
        "timeline-controls": Region(draw=draw_controls, live=False),
        "timeline-links": Region(draw=draw_links, quiet=True),
        "timeline-problem": Region(draw=_draw_problem),
        "trace": Region(draw=_draw_trace, quiet=True),
        "ideal": Region(draw=draw_ideal),
        "spans-title": Region(draw=_draw_title, quiet=True),
        "area": Region(draw=_draw_area, quiet=True),
        "details": Region(draw=_draw_details, quiet=True),
    },
    canvases={"timeline": Canvas(key=spans_key, draw=_draw_spans, suspects=marked_ranks)},
    control_values=control_values,
    preload=spans_key,
    freshness=lambda state, reads: [*reads.report_freshness(state), *ideal_freshness(state, reads)],
)
