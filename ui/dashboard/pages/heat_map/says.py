"""What the heat map shows, in words: a summary, the kind of time, or why nothing is drawn."""

from dataclasses import replace

import dash_mantine_components as dmc
import numpy as np
from dash import html
from dash.development.base_component import Component

from diagnose.model.compute_time import WORK_STAGES
from diagnose.model.exposed import AXIS_OF_STAGE
from telemetry.stages import Stage, StageClass
from ui.dashboard.data import Reads
from ui.dashboard.data.stage_times import PROCESSOR, WALL
from ui.dashboard.defaults import collectives_of
from ui.dashboard.pages.controls import link_button
from ui.dashboard.pages.heat_map.picture import has_values, is_during_compute, times_of, waits_of
from ui.dashboard.pages.heat_map.summary import heat_map_summary
from ui.dashboard.pages.panels import notice
from ui.dashboard.records import RunFacts, StageTimes
from ui.dashboard.view_state import Clock, Metric, ViewState
from ui.dashboard.wording import axes_text, compute_beside, count, during_compute

BASIS_NOTES = {
    PROCESSOR: "Processor time of the rank's own thread. It excludes waiting for other ranks.",
    WALL: "Wall time: a rank that waits for a slow rank looks slow too.",
}
EXPERTS_NOTE = (
    " It includes the time that follows from the number of tokens of the experts. The ratio in a finding excludes it."
)
NOT_OWN_NOTE = "Compute time is not known for all of these steps. Wall time is shown: a rank that waits looks slow too."
TOO_MANY_NOTE = " Compute time is computed for at most {most:,} operations: choose at most {steps}."
WAIT_NOTE = (
    "Median time that the other ranks of the group waited for this rank. All ranks leave a collective together, so "
    "the last to arrive spends the shortest time in it."
)
INNER_NOTE = " A rank can be late because it waits for another rank, in another group or pipeline stage: see the grid."
EXPOSED_NOTE = (
    "Exposed communication: the time in which a rank communicates along {axis} and does not compute. It covers all "
    "stages of this axis, as in rankscope diagnose."
)
NO_EXPOSED_NOTE = (
    "Exposed communication needs compute spans, and collectives or transfers of the chosen stage. It is not computed "
    "for more than {most:,} operations: choose fewer steps."
)
NO_WAIT_NOTE = (
    "This colour needs a collective that several ranks of each group recorded. All groups must lie along the same "
    "axes of the mesh. {stage} is not such a stage in these steps. Choose another stage, or colour by ratio to peers."
)


def draw_says(state: ViewState, reads: Reads) -> Component:
    """A summary of the picture, and the kind of time."""
    facts, times = times_of(state, reads)
    if state.metric is Metric.EXPOSED and not has_values(times, state.metric):
        return notice("Exposed communication is not known", NO_EXPOSED_NOTE.format(most=reads.max_own_operations))
    if not np.isfinite(times.ns).any():
        return notice("No data", f"No rank recorded {times.stage.label} in these steps.")
    if not has_values(times, state.metric):
        return _no_waiting_time(times.stage, state, reads)
    return html.Div(
        [
            dmc.Text(heat_map_summary(times, facts, state.metric, waits_of(state, reads)), fw=600, className="says"),
            dmc.Text(_note(times, state, facts, reads), size="sm", c="dimmed"),
        ],
        role="status",
    )


def _no_waiting_time(stage: Stage, state: ViewState, reads: Reads) -> Component:
    """Why the stage has no waiting time, with links to what shows the slow rank."""
    title = "No waiting time for this stage"
    if not is_during_compute(state, reads):
        return notice(title, NO_WAIT_NOTE.format(stage=stage.label))
    compute = compute_beside(stage)
    work = replace(state.at_stage(compute), metric=Metric.RATIO, clock=Clock.OWN)
    others = [replace(state, stage=other) for other in collectives_of(reads.facts(state)) if other is not stage]
    waits = [other for other in others if not is_during_compute(other, reads)]
    links = [
        link_button(f"Compute time of {compute.label}", work),
        *(link_button(f"Wait caused in {other.stage.label}", other) for other in waits),
    ]
    return notice(title, [during_compute(stage), html.Div(links, className="links")])


def _note(times: StageTimes, state: ViewState, facts: RunFacts, reads: Reads) -> str:
    match state.metric:
        case Metric.WAIT:
            return WAIT_NOTE + INNER_NOTE * (sum(degree > 1 for _, degree in facts.topology.mesh) > 1)
        case Metric.EXPOSED:
            return EXPOSED_NOTE.format(axis=axes_text(AXIS_OF_STAGE[times.stage], facts.topology))
    if is_during_compute(state, reads):
        return during_compute(times.stage)
    if state.clock is Clock.OWN and times.basis == WALL and times.stage.stage_class is StageClass.COMPUTE:
        return NOT_OWN_NOTE + _limit(times, facts, reads.max_own_operations)
    basis = BASIS_NOTES.get(times.basis, f"{times.basis.capitalize()}: it excludes waiting inside collectives.")
    has_experts = times.stage in WORK_STAGES and times.basis != WALL and Stage.EP_ALL_TO_ALL in facts.stages
    return basis + EXPERTS_NOTE * has_experts


def _limit(times: StageTimes, facts: RunFacts, most: int) -> str:
    """A note with the number of steps whose compute time can be shown. Empty if that is not the reason."""
    operations_a_step = facts.num_spans / max(1, len(facts.steps.step))
    num_steps = int(most / max(1.0, operations_a_step))
    is_limited = times.stage in WORK_STAGES and num_steps < max(times.num_steps, len(times.steps))
    return TOO_MANY_NOTE.format(most=most, steps=count(num_steps, "step")) if is_limited and num_steps else ""
