"""From a finding to the views that show it, the most telling first."""

from dataclasses import replace
from typing import NamedTuple

from diagnose.findings import Finding, Kind
from telemetry.stages import STAGE_BY_LABEL, Stage, Stream
from ui.dashboard.defaults import FAMILY_OF, typical_step
from ui.dashboard.records import RunFacts
from ui.dashboard.view_state import Group, Metric, StepRange, View, ViewState

PRICED_BY_WHATIF = {
    Kind.COMPUTE_STRAGGLER,
    Kind.HOST_CONTENTION,
    Kind.STAGE_IMBALANCE,
    Kind.DATA_IMBALANCE,
    Kind.LATE_LAUNCH,
}
"""Of these a replay tells what putting them right gives."""
TELLING = {Kind.STAGE_IMBALANCE: View.WHAT_IF, Kind.DATA_IMBALANCE: View.TIMELINE} | dict.fromkeys(
    FAMILY_OF, View.FLEET
)
"""Where a kind shows best; the others on the heat map."""


class Way(NamedTuple):
    """A link: what it shows, and its address."""

    name: str
    address: str


def ways(finding: Finding, facts: RunFacts) -> list[Way]:
    """The views that say something about a finding."""
    found = {
        View.HEAT_MAP: Way("heat map", _heat_map(finding, facts).search()),
        View.TIMELINE: Way("timeline", _timeline(finding, facts).search()),
    }
    if finding.kind is Kind.LOSS_ANOMALY:  # whoever is slow would be taken for its cause
        del found[View.HEAT_MAP]
    if finding.kind in PRICED_BY_WHATIF:
        found[View.WHAT_IF] = Way("what it costs", _at_steps(View.WHAT_IF, finding, facts).search())
    if finding.kind in FAMILY_OF and finding.hosts:
        found[View.FLEET] = Way("host", _fleet(finding, facts).search())
    first = TELLING.get(finding.kind, View.HEAT_MAP)
    return [found[view] for view in sorted(found, key=lambda view: view is not first)]


def _at_steps(view: View, finding: Finding, facts: RunFacts) -> ViewState:
    """A view of a finding's window."""
    run, window = facts.summary, finding.window
    return ViewState(
        view=view, run=run.run_id, attempt=run.attempt, steps=StepRange(window.first_step, window.last_step)
    )


def _heat_map(finding: Finding, facts: RunFacts) -> ViewState:
    """The heat map of the stage in which it shows; a ratio to peers hides a whole pipeline stage."""
    run = facts.summary
    metric = Metric.MILLISECONDS if finding.kind is Kind.STAGE_IMBALANCE else Metric.RATIO
    return ViewState(view=View.HEAT_MAP, run=run.run_id, attempt=run.attempt, stage=_stage(finding), metric=metric)


def _timeline(finding: Finding, facts: RunFacts) -> ViewState:
    """A step in which it shows, with those whom its first suspect meets there."""
    run = facts.summary
    return ViewState(
        view=View.TIMELINE,
        run=run.run_id,
        attempt=run.attempt,
        stage=_stage(finding),
        group=_group(finding, facts),
        rank=finding.ranks[0] if finding.ranks else None,
        step=_step(finding, facts),
    )


def _fleet(finding: Finding, facts: RunFacts) -> ViewState:
    """The samples of its first host."""
    state = _at_steps(View.FLEET, finding, facts)
    return replace(state, host=finding.hosts[0], family=FAMILY_OF[finding.kind])


def _stage(finding: Finding) -> Stage:
    return STAGE_BY_LABEL.get(finding.stage, Stage.FORWARD_COMPUTE)


def _group(finding: Finding, facts: RunFacts) -> Group | None:
    """Replicas side by side where they differ or meet, else the pipeline; None: as the timeline likes."""
    if finding.kind is Kind.DATA_IMBALANCE or _stage(finding).stream is Stream.DP:
        return Group.DP if facts.topology.dp > 1 else None
    if not finding.ranks:
        return None
    return Group.PP if facts.topology.pp > 1 else Group.ALL


def _step(finding: Finding, facts: RunFacts) -> int:
    """Where a loss went wrong, the first; else the last of those that it names, or a typical one of its window."""
    if finding.kind is Kind.LOSS_ANOMALY:
        return finding.window.first_step
    named = finding.evidence.get("steps")
    stored = facts.steps.step
    shown = [step for step in named if step in stored] if isinstance(named, list) else []
    if shown:
        return int(shown[-1])
    return typical_step(facts, StepRange(finding.window.first_step, finding.window.last_step))
