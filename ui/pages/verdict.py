"""The findings of a run: the worst in one sentence with the way to it, then each with its evidence."""

from dataclasses import replace

import dash_mantine_components as dmc
from dash import dcc, html
from dash.development.base_component import Component

from diagnose.findings import Finding, Kind
from diagnose.pipeline import Report
from diagnose.report.as_text import mark_line
from telemetry.stages import STAGE_BY_LABEL, Stage
from ui.defaults import FAMILY_OF, typical_step, worst_finding
from ui.pages.interface import SEVERITY_COLOURS
from ui.records import RunFacts
from ui.view_state import Family, Group, StepRange, View, ViewState
from ui.wording import count

PRICED_BY_WHATIF = {
    Kind.COMPUTE_STRAGGLER,
    Kind.HOST_CONTENTION,
    Kind.STAGE_IMBALANCE,
    Kind.DATA_IMBALANCE,
    Kind.LATE_LAUNCH,
}
"""Of these a replay tells what putting them right gives."""
MAX_MARKS = 12
"""Losses of link in the list; the fleet page has them all."""


def headline(report: Report, facts: RunFacts) -> Component:
    """The worst finding with its links, or why there is none."""
    worst = worst_finding(report)
    if worst is None:
        return _all_clear(report)
    links = [
        dcc.Link("Show heat map", href=heat_map_address(worst, facts), className="button primary"),
        dcc.Link("Show timeline", href=timeline_address(worst, facts), className="button"),
    ]
    if fleet := fleet_address(worst, facts):
        links.append(dcc.Link("Show host", href=fleet, className="button"))
    return dmc.Alert(
        dmc.Stack(
            [
                dmc.Text(worst.summary, fw=600, size="lg", className="verdict-text"),
                dmc.Text(f"Next: {worst.next_step}", size="sm"),
                dmc.Group(links, gap="sm", mt=4),
            ],
            gap=6,
        ),
        color=SEVERITY_COLOURS[worst.severity],
        variant="light",
        title=f"{worst.severity.value}: {worst.kind.value}",
        className="verdict",
    )


def looking(facts: RunFacts) -> Component:
    """Stands where findings will be told."""
    text = f"Comparing {count(facts.topology.world_size, 'rank')}: this takes some seconds. The page fills by itself."
    return dmc.Group([dmc.Loader(size="sm"), dmc.Text(text, size="sm")], gap="sm", className="looking")


def findings_list(report: Report, facts: RunFacts) -> Component:
    """Each finding with its evidence and what to do."""
    if not report.findings:
        return dmc.Text("None.", size="sm", c="dimmed")
    return dmc.Stack([_finding(finding, facts) for finding in report.findings], gap="sm")


def heat_map_address(finding: Finding, facts: RunFacts) -> str:
    """The heat map of the stage in which a finding shows."""
    return _state(View.HEAT_MAP, finding, facts).search()


def timeline_address(finding: Finding, facts: RunFacts) -> str:
    """A typical step of a finding's window, with the pipeline group of its first suspect."""
    within = StepRange(finding.window.first_step, finding.window.last_step)
    state = _state(View.TIMELINE, finding, facts)
    rank = finding.ranks[0] if finding.ranks else None
    group = (Group.PP if facts.topology.pp > 1 else Group.ALL) if finding.ranks else None
    run = facts.summary
    return ViewState(
        view=View.TIMELINE,
        run=run.run_id,
        attempt=run.attempt,
        stage=state.stage,
        group=group,
        rank=rank,
        step=typical_step(facts, within),
    ).search()


def whatif_address(finding: Finding, facts: RunFacts) -> str:
    """The what-if view of a finding's window."""
    run, window = facts.summary, finding.window
    steps = StepRange(window.first_step, window.last_step)
    return ViewState(view=View.WHAT_IF, run=run.run_id, attempt=run.attempt, steps=steps).search()


def fleet_address(finding: Finding, facts: RunFacts) -> str:
    """The samples of its first host over a finding's window; empty where it does not rest on what hosts told."""
    if finding.kind not in FAMILY_OF or not finding.hosts:
        return ""
    return ViewState(
        view=View.FLEET,
        run=facts.summary.run_id,
        attempt=facts.summary.attempt,
        host=finding.hosts[0],
        family=FAMILY_OF[finding.kind],
        steps=StepRange(finding.window.first_step, finding.window.last_step),
    ).search()


def marks_list(report: Report, facts: RunFacts) -> Component:
    """What happened on hosts that is no finding, the newest last, with the way to each host."""
    run = facts.summary
    state = ViewState(view=View.FLEET, run=run.run_id, attempt=run.attempt, family=Family.NETWORK)
    return html.Ul(
        [
            html.Li([mark_line(mark), " ", dcc.Link("host", href=replace(state, host=mark.host).search())])
            for mark in report.marks[-MAX_MARKS:]
        ],
        className="host-marks",
    )


def _state(view: View, finding: Finding, facts: RunFacts) -> ViewState:
    stage = STAGE_BY_LABEL.get(finding.stage, Stage.FORWARD_COMPUTE)
    return ViewState(view=view, run=facts.summary.run_id, attempt=facts.summary.attempt, stage=stage)


def _all_clear(report: Report) -> Component:
    steps = f"steps {report.window.first_step} to {report.window.last_step}"
    if report.findings:
        return dmc.Alert(report.findings[0].summary, title="Not enough evidence yet", color="gray", variant="light")
    return dmc.Alert(
        f"No rank stands out over {steps} ({count(report.num_ranks, 'rank')}).",
        title="Nothing found",
        color="teal",
        variant="light",
        className="verdict",
    )


def _finding(finding: Finding, facts: RunFacts) -> Component:
    evidence = [
        html.Div([html.Dt(name.replace("_", " ")), html.Dd(_value(value))]) for name, value in finding.evidence.items()
    ]
    head = dmc.Group(
        [
            dmc.Badge(finding.severity.value, color=SEVERITY_COLOURS[finding.severity], variant="light"),
            dmc.Text(finding.kind.value, fw=600, size="sm"),
            dmc.Text(f"{finding.seconds_lost:.1f} s lost · confidence {finding.confidence:.0%}", size="sm", c="dimmed"),
        ],
        gap="xs",
    )
    links = [
        dcc.Link("heat map", href=heat_map_address(finding, facts)),
        dcc.Link("timeline", href=timeline_address(finding, facts)),
    ]
    if finding.kind in PRICED_BY_WHATIF:
        links.append(dcc.Link("what it costs", href=whatif_address(finding, facts)))
    if fleet := fleet_address(finding, facts):
        links.append(dcc.Link("host", href=fleet))
    return html.Article(
        [head, dmc.Text(finding.summary, size="sm"), html.Dl(evidence, className="facts"), dmc.Group(links, gap="md")],
        className="finding",
    )


def _value(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
