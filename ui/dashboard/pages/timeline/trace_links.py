"""The links of the timeline to trace files for Perfetto."""

from urllib.parse import urlsplit

import numpy as np
from dash import html
from dash.development.base_component import Component

from diagnose.ranges import fold_ranks, named_ranks
from diagnose.trace.export import Format, can_write
from telemetry.errors import UsageError
from ui.dashboard.data import Reads
from ui.dashboard.pages.timeline.perfetto import open_button
from ui.dashboard.pages.timeline.selection import StepSelection, selection
from ui.dashboard.pages.timeline.trace_file import command, num_spans, shown_profiles, trace_address
from ui.dashboard.view_state import StepRange, View, ViewState
from ui.dashboard.wording import count

AROUND = 10
"""Number of steps in the larger trace file."""
HOW = (
    "Choose “Open trace file” on ui.perfetto.dev, or on your own copy of it. Perfetto reads the file inside your "
    "browser and uploads nothing."
)
HOW_DIRECTLY = (
    "“Open in a new tab” loads Perfetto's page from {host} and gives it the file. Perfetto reads the file inside your "
    "browser and uploads nothing. Or save a file, and choose “Open trace file” there."
)


def draw_trace_links(state: ViewState, reads: Reads) -> Component:
    """A link for each trace file: the step, and the steps around it."""
    shown = selection(state, reads)
    ranks = fold_ranks(shown.rows.ranks)
    windows = dict.fromkeys((StepRange(shown.step, shown.step), shown.steps, _around(shown)))
    files = [_links(shown, steps, reads) for steps in windows]
    return html.Details(
        [
            html.Summary("Open in Perfetto", className="button"),
            html.Div(
                [
                    html.P(f"Trace file of ranks {ranks}, with the transfers between them as arrows:"),
                    html.Ul(files),
                    html.P(HOW_DIRECTLY.format(host=urlsplit(reads.perfetto).netloc) if reads.perfetto else HOW),
                    html.P("", className="perfetto-answer", role="status"),
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


def _links(shown: StepSelection, steps: StepRange, reads: Reads) -> Component:
    named = f"step {steps.first}" if steps.first == steps.last else f"steps {steps.first} to {steps.last}"
    try:
        spans = num_spans(shown.facts, steps, shown.rows, reads)
    except UsageError as error:
        whole = html.Code(command(shown.facts, steps, shown.rows))
        return html.Li([f"{named}: {error.message}. This command writes all of them: ", whole])
    profiles = shown_profiles(shown.facts, steps, shown.rows, reads)
    items: list[Component | str] = [f"{named} ({count(spans, 'span')}): ", *_files(shown, steps, named, reads)]
    if profiles:
        profiled = named_ranks(sorted({profile.rank for profile in profiles}))
        items += [html.Br(), f"with profiles of {profiled}: "]
        items += _files(shown, steps, f"{named}, with profiles", reads, with_profiles=True)
    return html.Li(items)


def _files(
    shown: StepSelection, steps: StepRange, named: str, reads: Reads, *, with_profiles: bool = False
) -> list[Component | str]:
    """The links of one window: a file in each format, and the button."""
    run, rows = shown.facts.summary, shown.rows
    exactly = ViewState(
        view=View.TIMELINE,
        run=run.run_id,
        attempt=run.attempt,
        steps=steps,
        group=rows.group,
        rank=rows.rank,
        step=shown.step,
        pins=rows.pinned,
    )
    trace = trace_address(exactly, Format.JSON, with_profiles=with_profiles)
    links: list[Component | str] = [html.A("Chrome JSON", href=trace)]
    if can_write(Format.PROTOBUF):
        protobuf = trace_address(exactly, Format.PROTOBUF, with_profiles=with_profiles)
        links += [", ", html.A("Perfetto protobuf", href=protobuf)]
    if reads.perfetto:
        links.append(open_button(reads.perfetto, trace, f"{run.run_id}, {named}"))
    return links
