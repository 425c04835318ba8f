"""The sentence above the ideal timeline: the time lost in the step, or why it is not known."""

import logging

import dash_mantine_components as dmc
from dash import dcc, html
from dash.development.base_component import Component

from diagnose.whatif.analysis import IdealSteps, NotReplayed
from ui.dashboard.background import StillWorking
from ui.dashboard.data import Reads
from ui.dashboard.data.whatif import Asked
from ui.dashboard.pages.panels import at_work, notice
from ui.dashboard.pages.timeline.ideal_strip import IdealStrip, ideal_strip
from ui.dashboard.pages.timeline.replay import asked_ideal, ideal_of, known_ideal
from ui.dashboard.pages.timeline.selection import StepSelection, selection, spans
from ui.dashboard.view_state import View, ViewState
from ui.dashboard.wording import duration

log = logging.getLogger(__name__)

OTHERWISE = (
    "Choose a step without a checkpoint or an evaluation. Every rank must record its compute, pipeline and "
    "data-parallel stages in the order of the step."
)


def draw_ideal(state: ViewState, reads: Reads) -> Component | None:
    """Nothing where nobody asked."""
    if not state.ideal:
        return None
    shown = selection(state, reads)
    asked = asked_ideal(shown.facts, shown.step, reads)
    try:
        found = ideal_of(shown.facts, asked, reads)
    except StillWorking:
        return at_work(
            f"Replaying steps {asked.steps.first} to {asked.steps.last} ({asked.num_operations:,} operations) for the "
            "ideal timeline. The page updates automatically."
        )
    if isinstance(found, NotReplayed):
        return _refused(found.why)
    if why := found.refusal_of(shown.step):
        return _refused(why)
    return _said(found, shown, asked)


def known_strip(state: ViewState, shown: StepSelection, reads: Reads) -> IdealStrip | None:
    """What is drawn below the real bars, once it is known; a picture neither waits for it nor fails with it."""
    try:
        found = known_ideal(state, shown.facts, shown.step, reads)
    except Exception:
        log.exception("no ideal timeline: %s", state.search())
        return None
    return None if found is None else ideal_strip(found, shown.step, spans(shown, reads))


def _refused(why: str) -> Component:
    return notice("No ideal timeline for this step", [html.P(f"{why[:1].upper()}{why[1:]}."), OTHERWISE])


def _said(found: IdealSteps, shown: StepSelection, asked: Asked) -> Component:
    run = shown.facts.summary
    whatif = ViewState(view=View.WHAT_IF, run=run.run_id, attempt=run.attempt, steps=asked.steps).search()
    basis = (
        "The strip below each rank's bars shows the same operations in the ideal step. Each operation takes the mean "
        f"compute time or the median transfer time of all ranks in steps {found.steps[0]} to {found.steps[-1]}, and "
        "starts as soon as its inputs are ready. Both timelines begin at the same time."
    )
    lines = [
        dmc.Text(loss_in_words(*found.cost_of(shown.step)), fw=600),
        dmc.Text([basis, " ", dcc.Link("What if", href=whatif)], size="sm", c="dimmed"),
    ]
    return html.Div(lines, role="status", className="panel")


def loss_in_words(took_ns: float, ideal_ns: float) -> str:
    """``This step takes 442 ms; if all ranks were equally fast, it would take 380 ms: 62.0 ms (14.0%) is lost.``"""
    both = f"This step takes {duration(took_ns)}; if all ranks were equally fast, it would take {duration(ideal_ns)}"
    lost_ns = took_ns - ideal_ns
    if lost_ns <= 0:
        return f"{both}: no time is lost."
    return f"{both}: {duration(lost_ns)} ({lost_ns / took_ns:.1%}) is lost."
