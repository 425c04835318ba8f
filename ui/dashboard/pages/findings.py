"""The findings of a run: the worst in one sentence, then each with its evidence and links to the views that show it."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import dash_mantine_components as dmc
from dash import dcc, html
from dash.development.base_component import Component

from diagnose.findings import Finding, Kind, StepWindow
from diagnose.pipeline import Report
from diagnose.report.as_text import mark_line
from diagnose.report.evidence import evidence_in_words
from diagnose.whatif.cost import REPLAYED
from telemetry.stages import STAGE_BY_LABEL, Stream
from ui.dashboard.defaults import FAMILY_OF, named_steps, onset_of, typical_step, worst_finding
from ui.dashboard.pages.interface import SEVERITY_COLOURS
from ui.dashboard.pages.panels import verdict_alert
from ui.dashboard.records import RunFacts
from ui.dashboard.view_state import LARGEST, Clock, Family, Group, Metric, StepRange, View, ViewState
from ui.dashboard.wording import count, named_kind

BEST_VIEW = {Kind.STAGE_IMBALANCE: View.WHATIF, Kind.DATA_IMBALANCE: View.TIMELINE} | dict.fromkeys(
    FAMILY_OF, View.FLEET
)
"""The best view of a kind. The default is the heat map."""


class FindingLink(NamedTuple):
    """A link to a view."""

    name: str
    address: str


def links_to_views(finding: Finding, examined: StepWindow, facts: RunFacts, state: ViewState) -> list[FindingLink]:
    """Links to the views that show a finding. ``examined``: the steps of its report."""
    chosen = selection(finding, examined, facts, state)
    found = {
        View.HEAT_MAP: FindingLink("heat map", _heat_map(finding, chosen).search()),
        View.TIMELINE: FindingLink("timeline", _timeline(finding, facts, chosen).search()),
    }
    if finding.kind is Kind.LOSS_ANOMALY:  # a slow rank would be mistaken for its cause
        del found[View.HEAT_MAP]
    if finding.kind in REPLAYED:
        found[View.WHATIF] = FindingLink("cost", _in_its_steps(View.WHATIF, finding, chosen).search())
    if finding.kind in FAMILY_OF and finding.hosts:
        found[View.FLEET] = FindingLink("host", _fleet(finding, chosen).search())
    first = BEST_VIEW.get(finding.kind, View.HEAT_MAP)
    return [found[view] for view in sorted(found, key=lambda view: view is not first)]


def selection(finding: Finding, examined: StepWindow, facts: RunFacts, state: ViewState) -> ViewState:
    """``state`` with the parts that the finding determines: its attempt, the steps around its onset, its first suspect,
    its stage and its host. Other choices stay."""
    run, onset = facts.summary, onset_of(finding, examined)
    chosen = replace(state, run=run.run_id, attempt=run.attempt)
    chosen = chosen.at_steps(None if onset is None else StepRange.around(onset))
    if finding.ranks:
        chosen = chosen.at_rank(finding.ranks[0])
    if stage := STAGE_BY_LABEL.get(finding.stage):
        chosen = chosen.at_stage(stage)
    return replace(chosen, host=finding.hosts[0]) if finding.hosts else chosen


def _in_its_steps(view: View, finding: Finding, chosen: ViewState) -> ViewState:
    """The view with all steps of the finding, for its cost and for the samples of its host."""
    return replace(chosen.at_steps(StepRange(finding.window.first_step, finding.window.last_step)), view=view)


def _heat_map(finding: Finding, chosen: ViewState) -> ViewState:
    """The heat map of the stage of a finding. A ratio to peers hides a slow pipeline stage."""
    metric = Metric.MILLISECONDS if finding.kind is Kind.STAGE_IMBALANCE else Metric.RATIO
    return replace(chosen, view=View.HEAT_MAP, metric=metric, clock=Clock.OWN, only="")  # so that suspects are shown


def _timeline(finding: Finding, facts: RunFacts, chosen: ViewState) -> ViewState:
    """A step of a finding, with the group of its first suspect."""
    group = _group(finding, facts)
    rows = chosen if group is None else chosen.at_group(group)
    return replace(rows.at_step(_step(finding, facts, chosen.steps)), view=View.TIMELINE)


def _fleet(finding: Finding, chosen: ViewState) -> ViewState:
    return replace(_in_its_steps(View.FLEET, finding, chosen), family=FAMILY_OF[finding.kind])


def _group(finding: Finding, facts: RunFacts) -> Group | None:
    """The group to show: replicas if they differ or communicate, otherwise the pipeline. None if any group will do."""
    stage = STAGE_BY_LABEL.get(finding.stage)
    if finding.kind is Kind.DATA_IMBALANCE or (stage is not None and stage.stream is Stream.DP):
        return Group.DP if facts.topology.dp > 1 else None
    if not finding.ranks:
        return None
    return Group.PP if facts.topology.pp > 1 else Group.ALL


def _step(finding: Finding, facts: RunFacts, around: StepRange | None) -> int:
    """The first step of a loss anomaly. Otherwise the last step that the finding names, or a typical step of its
    window: within the steps ``around`` its onset."""
    if finding.kind is Kind.LOSS_ANOMALY:
        return finding.window.first_step
    shown = around or StepRange(0, LARGEST)
    named = [step for step in named_steps(finding) if step in facts.steps.step and shown.first <= step <= shown.last]
    if named:
        return named[-1]
    window = finding.window
    return typical_step(facts, StepRange(max(window.first_step, shown.first), min(window.last_step, shown.last)))


WIDE_CHARACTERS = 100
"""Values of evidence with more characters take the whole width."""
MAX_MARKS = 12
"""Largest number of link losses in the list. The fleet page has all of them."""


def headline(report: Report, facts: RunFacts, state: ViewState) -> Component:
    """The worst finding with its links, or why there is none."""
    worst = worst_finding(report)
    if worst is None:
        return _all_clear(report)
    links = [
        dcc.Link(f"Show {link.name}", href=link.address, className="button" if at else "button primary")
        for at, link in enumerate(links_to_views(worst, report.window, facts, state))
    ]
    lines = [
        dmc.Text(worst.headline, fw=600, size="lg", className="verdict-text"),
        dmc.Text(f"Next: {worst.next_step}", size="sm"),
        dmc.Group(links, gap="sm", mt=4),
    ]
    return verdict_alert(f"{worst.severity.value}: {named_kind(worst.kind)}", lines, SEVERITY_COLOURS[worst.severity])


def looking(facts: RunFacts) -> Component:
    """Shown until the detectors are ready."""
    text = f"Comparing {count(facts.topology.world_size, 'rank')}. The page updates automatically."
    return dmc.Group([dmc.Loader(size="sm"), dmc.Text(text, size="sm")], gap="sm", className="looking")


def findings_list(
    report: Report, facts: RunFacts, state: ViewState, below: Callable[[Finding], Component | None]
) -> Component:
    """Each finding with its evidence and links. ``below``: returns what is shown below a finding."""
    if not report.findings:
        return dmc.Text("None.", size="sm", c="dimmed")
    parts = [
        _finding(finding, links_to_views(finding, report.window, facts, state), below(finding))
        for finding in report.findings
    ]
    return dmc.Stack(parts, gap="sm")


def marks_list(report: Report, facts: RunFacts, state: ViewState) -> Component:
    """Events of hosts, the newest last, with links to the hosts. These events are not findings. The sum of the
    Overview does not contain their cost."""
    run = facts.summary
    exactly = replace(state, view=View.FLEET, run=run.run_id, attempt=run.attempt, family=Family.NETWORK)
    lines = [
        html.Li([mark_line(mark), " ", dcc.Link("host", href=replace(exactly, host=mark.host).search())])
        for mark in report.marks[-MAX_MARKS:]
    ]
    heading = dmc.Text("Events of hosts. They are not part of the findings above.", size="sm", fw=600)
    return html.Div([heading, html.Ul(lines, className="host-marks")])


def _all_clear(report: Report) -> Component:
    steps = report.window.in_words
    if report.findings:
        return dmc.Alert(report.findings[0].headline, title="Not enough evidence yet", color="gray", variant="light")
    return dmc.Alert(
        f"No rank is slower than its peers in {steps} ({count(report.num_ranks, 'rank')}).",
        title="No finding",
        color="teal",
        variant="light",
        className="verdict",
    )


def _fact(name: str, value: str) -> Component:
    """A name with its value. A long value takes the whole width."""
    return html.Div([html.Dt(name), html.Dd(value)], className="wide" if len(value) > WIDE_CHARACTERS else "")


def _finding(finding: Finding, links: Sequence[FindingLink], below: Component | None) -> Component:
    evidence = [_fact(name, value) for name, value in evidence_in_words(finding.evidence)]
    head = dmc.Group(
        [
            dmc.Badge(finding.severity.value, color=SEVERITY_COLOURS[finding.severity], variant="light"),
            dmc.Text(named_kind(finding.kind), fw=600, size="sm"),
            dmc.Text(f"{finding.cost} · confidence {finding.confidence:.0%}", size="sm", c="dimmed"),
        ],
        gap="xs",
    )
    return html.Article(
        [
            head,
            dmc.Text(finding.headline, size="sm"),
            html.Dl(evidence, className="facts"),
            dmc.Group([dcc.Link(link.name, href=link.address) for link in links], gap="md"),
            below,
        ],
        className="finding",
    )
