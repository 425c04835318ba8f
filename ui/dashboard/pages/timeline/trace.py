"""The way from a timeline to Perfetto: files to download, and what to do with them."""

import numpy as np
from dash import html
from dash.development.base_component import Component

from diagnose.ranges import fold_ranks
from diagnose.trace.export import Format, can_write
from telemetry.errors import UsageError
from ui.dashboard.data import Reads
from ui.dashboard.data.trace import command, num_spans, trace_address
from ui.dashboard.pages.timeline.scene import Scene, scene
from ui.dashboard.view_state import StepRange, View, ViewState
from ui.dashboard.wording import count

AROUND = 10
"""Steps of the wider file."""
HOW = (
    "Open the file with “Open trace file” of ui.perfetto.dev, or of a copy of it that you serve yourself: its page "
    "reads the file inside your browser. Nothing leaves this machine unless you take it there."
)


def draw_trace(state: ViewState, reads: Reads) -> Component:
    """Folded until somebody opens it."""
    shown = scene(state, reads)
    ranks = fold_ranks(shown.rows.ranks)
    windows = dict.fromkeys((StepRange(shown.step, shown.step), _around(shown)))
    offers = [_offer(shown, steps, reads) for steps in windows]
    return html.Details(
        [
            html.Summary("Open in Perfetto", className="button"),
            html.Div(
                [html.P(f"A trace file of ranks {ranks}, with arrows between them:"), html.Ul(offers), html.P(HOW)]
            ),
        ],
        className="trace-files",
    )


def _around(shown: Scene) -> StepRange:
    """The step among its stored neighbours."""
    stored = shown.facts.steps.step
    at = int(np.searchsorted(stored, shown.step))
    first = max(0, min(at - AROUND // 2, len(stored) - AROUND))
    return StepRange(int(stored[first]), int(stored[min(first + AROUND, len(stored)) - 1]))


def _offer(shown: Scene, steps: StepRange, reads: Reads) -> Component:
    named = f"step {steps.first}" if steps.first == steps.last else f"steps {steps.first} to {steps.last}"
    try:
        spans = num_spans(shown.facts, steps, shown.rows, reads)
    except UsageError as error:
        whole = html.Code(command(shown.facts, steps, shown.rows))
        return html.Li([f"{named}: {error.message}. The command writes them all: ", whole])
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
