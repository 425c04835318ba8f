"""The findings of a run: the worst in one sentence with the way to it, then each with its evidence."""

from dataclasses import replace

import dash_mantine_components as dmc
from dash import dcc, html
from dash.development.base_component import Component

from diagnose.findings import Finding
from diagnose.pipeline import Report
from diagnose.report.as_text import mark_line
from ui.dashboard.defaults import worst_finding
from ui.dashboard.pages.interface import SEVERITY_COLOURS
from ui.dashboard.pages.ways import ways
from ui.dashboard.records import RunFacts
from ui.dashboard.view_state import Family, View, ViewState
from ui.dashboard.wording import count

MAX_MARKS = 12
"""Losses of link in the list; the fleet page has them all."""


def headline(report: Report, facts: RunFacts) -> Component:
    """The worst finding with its links, or why there is none."""
    worst = worst_finding(report)
    if worst is None:
        return _all_clear(report)
    links = [
        dcc.Link(f"Show {way.name}", href=way.address, className="button" if at else "button primary")
        for at, way in enumerate(ways(worst, facts))
    ]
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


def _all_clear(report: Report) -> Component:
    steps = report.window.in_words
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
    links = [dcc.Link(way.name, href=way.address) for way in ways(finding, facts)]
    return html.Article(
        [head, dmc.Text(finding.summary, size="sm"), html.Dl(evidence, className="facts"), dmc.Group(links, gap="md")],
        className="finding",
    )


def _value(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
