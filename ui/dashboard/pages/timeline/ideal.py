"""The ideal timeline of a step: its replay in the background, and the sentence about the lost time.

The replay is bounded. Neighbouring steps share one replay.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import dash_mantine_components as dmc
import numpy as np
from dash import dcc, html
from dash.development.base_component import Component

from diagnose.whatif.ideal_steps import IdealSteps, NotReplayed, ideal_steps
from telemetry.errors import RankscopeError, UsageError
from ui.dashboard.data import Reads
from ui.dashboard.data.cache import StillWorking
from ui.dashboard.data.whatif import ReplayRequest, command
from ui.dashboard.defaults import chosen_step
from ui.dashboard.pages.panels import notice, working
from ui.dashboard.pages.timeline.ideal_strip import IdealStrip, ideal_strip, left_out
from ui.dashboard.pages.timeline.selection import StepSelection, selection, spans
from ui.dashboard.records import Ints, RunFacts
from ui.dashboard.view_state import StepRange, View, ViewState
from ui.dashboard.wording import capitalized, displayed_ns, duration

log = logging.getLogger(__name__)

STEPS = 20
"""Neighbouring steps that are replayed together. Their means are the ideal durations."""
HINT = (
    "Choose a step without a checkpoint or an evaluation. Every rank must record its compute, pipeline and "
    "data-parallel stages in the order of the step."
)


def ideal_request(facts: RunFacts, step: int, reads: Reads) -> ReplayRequest:
    """The stored steps that are replayed together with ``step``. They are fewer than STEPS if STEPS steps have too many
    operations."""
    stored = facts.steps.step
    near = stored[stored // STEPS == step // STEPS]
    request = _request(facts, near, reads)
    fits = max(1, reads.max_operations * len(near) // max(1, request.num_operations))
    if fits >= len(near):
        return request
    first = int(np.searchsorted(near, step)) // fits * fits
    return _request(facts, near[first : first + fits], reads)


def ideal_of(facts: RunFacts, request: ReplayRequest, reads: Reads) -> IdealSteps | NotReplayed:
    """The ideal steps of a request, or why they could not be replayed.

    Raises:
        StillWorking: the replay is not ready.
        UsageError: even a single step has too many operations.
    """
    if request.num_steps == 1 and request.num_operations > reads.max_operations:
        raise UsageError(
            f"A step of this run has {request.num_operations:,} operations: too many to replay for a page",
            hint=f"run this command to see the cost of slow ranks: {command(facts, request)}",
        )
    return reads.background.get(_key(facts, request), partial(_replay, facts, request, reads))


def ideal_freshness(state: ViewState, reads: Reads) -> list[object]:
    """A value that changes when the replay is ready."""
    if not state.ideal:
        return []
    facts = reads.facts(state)
    try:
        request = ideal_request(facts, chosen_step(state, facts), reads) if len(facts.steps.step) else None
    except RankscopeError:
        return []
    if request is None:
        return []
    return [*request.steps, request.num_operations, reads.background.is_ready(_key(facts, request))]


def _request(facts: RunFacts, steps: Ints, reads: Reads) -> ReplayRequest:
    window = StepRange(int(steps[0]), int(steps[-1]))
    return ReplayRequest(steps=window, num_steps=len(steps), num_operations=reads.num_operations(facts.summary, window))


def _key(facts: RunFacts, request: ReplayRequest) -> tuple[str, str, int, ReplayRequest]:
    return "ideal", facts.summary.run_id, facts.summary.attempt, request


def _replay(facts: RunFacts, request: ReplayRequest, reads: Reads) -> IdealSteps | NotReplayed:
    return ideal_steps(reads.view(facts.summary, request.steps))


def draw_ideal(state: ViewState, reads: Reads) -> Component | None:
    """The time lost in the step, or why it is not known. None if the view does not show the ideal timeline."""
    if not state.ideal:
        return None
    shown = selection(state, reads)
    if shown.step == shown.unfinished:
        return notice("No ideal timeline for this step", f"Not all ranks have completed step {shown.step}.")
    request = ideal_request(shown.facts, shown.step, reads)
    try:
        ideal = ideal_of(shown.facts, request, reads)
    except StillWorking:
        return working(
            f"Replaying steps {request.steps.first} to {request.steps.last} ({request.num_operations:,} operations) "
            "for the ideal timeline. The page updates automatically."
        )
    why = ideal.why if isinstance(ideal, NotReplayed) else ideal.refusal_of(shown.step)
    if isinstance(ideal, NotReplayed) or why:
        return notice("No ideal timeline for this step", [html.P(f"{capitalized(why)}."), HINT])
    run = shown.facts.summary
    whatif = replace(state.at_steps(request.steps), view=View.WHATIF, run=run.run_id, attempt=run.attempt).search()
    basis = (
        "The strip below each rank's bars shows the operations of the ideal step. Each takes the mean "
        f"compute time or the median transfer time of all ranks in steps {ideal.steps[0]} to {ideal.steps[-1]}, and "
        "starts as soon as its inputs are ready. Both timelines begin at the same time."
        f"{_scale_text(ideal.scale_of(shown.step))}"
    )
    if labels := left_out(ideal, spans(shown, reads)):
        basis += f" {left_out_text(labels)}"
    lines = [
        dmc.Text(loss_text(*ideal.cost_of(shown.step)), fw=600),
        dmc.Text([basis, " ", dcc.Link("What if", href=whatif)], size="sm", c="dimmed"),
    ]
    return html.Div(lines, role="status", className="panel")


def known_strip(state: ViewState, shown: StepSelection, reads: Reads) -> IdealStrip | None:
    """The strip below the measured bars, if the view shows it and its replay is ready. This never waits for a replay
    and raises no error."""
    try:
        is_replayed = state.ideal and shown.step != shown.unfinished
        request = ideal_request(shown.facts, shown.step, reads) if is_replayed else None
        if request is None or not reads.background.is_ready(_key(shown.facts, request)):
            return None
        ideal = ideal_of(shown.facts, request, reads)
        if isinstance(ideal, NotReplayed) or ideal.refusal_of(shown.step):
            return None
        return ideal_strip(ideal, shown.step, spans(shown, reads))
    except Exception:
        log.exception("no ideal timeline: %s", state.search())
        return None


def _scale_text(scale: float) -> str:
    """A sentence about the scale of the strip; empty if the measured and the replayed step take the same time."""
    factor = f"{scale:.3f}"
    if factor == "1.000":
        return ""
    return f" All times of the strip are multiplied by {factor}: the measured step time divided by the replayed one."


def left_out_text(labels: Sequence[str]) -> str:
    """Names the stages that the strip does not show, and why."""
    *others, last = labels
    names = f"{', '.join(others)} and {last}" if others else last
    return f"The strip leaves out {names}: the replay contains no stage that runs during another stage."


def loss_text(took_ns: float, ideal_ns: float) -> str:
    """``This step takes 442 ms; if all ranks were equally fast, it would take 380 ms: 62.0 ms (14.0%) is lost.``

    The ideal time is shown as the difference of the other two numbers, which the picture contains too.
    """
    lost_ns = took_ns - ideal_ns
    step = f"This step takes {duration(took_ns)}; if all ranks were equally fast, it would take"
    if lost_ns <= 0:
        return f"{step} {duration(ideal_ns)}: no time is lost."
    shown_ns = displayed_ns(took_ns) - displayed_ns(lost_ns)
    return f"{step} {duration(shown_ns)}: {duration(lost_ns)} ({lost_ns / took_ns:.1%}) is lost."
