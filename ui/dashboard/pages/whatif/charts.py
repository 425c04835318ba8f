"""The charts of the what-if page, and the analysis that all its parts share."""

from collections.abc import Callable
from typing import NamedTuple

import plotly.graph_objects as go

from diagnose.whatif.analysis import WhatIf
from diagnose.whatif.conclude import Conclusion
from ui.dashboard.data import Reads
from ui.dashboard.data.whatif import asked_for, whatif
from ui.dashboard.defaults import suspects, typical_step
from ui.dashboard.figures import blame
from ui.dashboard.records import RunFacts
from ui.dashboard.view_state import StepRange, ViewState


class Shown(NamedTuple):
    """An analysis that holds."""

    found: Conclusion
    figures: WhatIf
    facts: RunFacts
    step: int
    """A typical one of those replayed: where links lead."""
    keep: str


def shown_analysis(state: ViewState, reads: Reads) -> Shown | None:
    """None where nothing can be concluded.

    Raises:
        StillWorking: it is not there yet.
    """
    facts = reads.facts(state)
    found = whatif(facts, asked_for(facts, state, reads), reads)
    if found.figures is None or not found.holds:
        return None
    first, last = int(found.steps[0]), int(found.steps[-1])
    run = facts.summary
    return Shown(
        found=found,
        figures=found.figures,
        facts=facts,
        step=typical_step(facts, StepRange(first, last)),
        keep=f"{run.run_id}/{run.attempt}/{state.steps}",
    )


def taken_apart(state: ViewState, reads: Reads) -> Shown | None:
    """None also where there is no slowdown to take apart."""
    shown = shown_analysis(state, reads)
    return None if shown is None or shown.found.worst_workers is None else shown


def draw_by_stage(state: ViewState, reads: Reads) -> go.Figure | None:
    """Bars of stages."""
    shown = taken_apart(state, reads)
    return shown and blame.by_stage(shown.figures, shown.step, keep=shown.keep)


def draw_by_pp(state: ViewState, reads: Reads) -> go.Figure | None:
    """Bars of pipeline ranks; None without a pipeline."""
    shown = taken_apart(state, reads)
    if shown is None or len(shown.figures.by_pp) < 2:
        return None
    return blame.by_place(shown.figures, "pp", shown.step, keep=shown.keep)


def draw_by_dp(state: ViewState, reads: Reads) -> go.Figure | None:
    """Bars of replicas; None where there is one."""
    shown = taken_apart(state, reads)
    if shown is None or len(shown.figures.by_dp) < 2:
        return None
    return blame.by_place(shown.figures, "dp", shown.step, keep=shown.keep)


def draw_workers(state: ViewState, reads: Reads) -> go.Figure | None:
    """Workers as cells; None where there is one."""
    shown = taken_apart(state, reads)
    if shown is None or shown.figures.by_worker.size < 2:
        return None
    return blame.workers(shown.figures, suspects(shown.found.report), shown.step, keep=shown.keep)


def draw_fixing(state: ViewState, reads: Reads) -> go.Figure | None:
    """Step time by number of workers put right."""
    shown = taken_apart(state, reads)
    if shown is None or shown.found.worst_workers is None:
        return None
    return blame.fixing(
        shown.found.worst_workers,
        shown.figures.topology,
        float(shown.figures.ideal_step_s.mean()),
        step_s=shown.found.step_s,
        keep=shown.keep,
    )


DRAWN: dict[str, Callable[[ViewState, Reads], go.Figure | None]] = {
    "workers": draw_workers,
    "by-pp": draw_by_pp,
    "by-dp": draw_by_dp,
    "by-stage": draw_by_stage,
    "fixing": draw_fixing,
}
