"""The cells of the list of runs. The overview uses some of them."""

import dash_mantine_components as dmc
from dash import html
from dash.development.base_component import Component

from diagnose.model.run_state import RunState
from ui.dashboard.pages.interface import SEVERITY_COLOURS
from ui.dashboard.records import RunSummary
from ui.dashboard.run_rows import OpenFindings, RecentMean

STATE_COLOURS = {
    RunState.LIVE: "teal",
    RunState.SILENT: "orange",
    RunState.ENDED: "gray",
    RunState.DIED: "red",
    RunState.STALLED: "red",
}
STATE_IN_WORDS = {
    RunState.LIVE: "a heartbeat arrived within 20 seconds",
    RunState.SILENT: "no heartbeat for 20 seconds and no rank has ended: the agents or their hosts are down",
    RunState.ENDED: "every rank ended normally, or no agent watched the run",
    RunState.DIED: "a rank ended with an error, or its process is lost",
    RunState.STALLED: "no step completes; the agents collected evidence",
}
UNKNOWN = "—"


def no_stall_in_words(run: RunSummary) -> str:
    """What is known of a run without a stall: of one that is over, or ships nothing, nobody looks at the present."""
    if run.heard.is_silent:
        return "No stall is known"
    return "No stall was recorded" if run.is_over or run.state is RunState.DIED else "The job is not stalled"


def state_badge(state: RunState) -> Component:
    """Whether anybody is still at work, in a word."""
    return dmc.Badge(state.value, color=STATE_COLOURS[state], variant="light", size="md")


def state_cell(state: RunState) -> Component:
    """The same with what it means."""
    return html.Span(state_badge(state), title=STATE_IN_WORDS[state])


def findings_cell(findings: OpenFindings | None) -> Component:
    """How many findings are open, and the worst in words."""
    if findings is None:
        return html.Span(
            "not analysed", className="dim", title="No watcher has analysed this run, and nobody has opened its pages"
        )
    if not findings.count:
        return html.Span("none", className="dim")
    count = dmc.Badge(str(findings.count), color=SEVERITY_COLOURS[findings.severity], variant="light", size="md")
    words = [count, html.Span(findings.worst), dmc.VisuallyHidden(f", {findings.severity.value}")]
    return html.Span(words, className="run-findings", title=findings.told)


def mean_of_steps(recent: RecentMean) -> str:
    """``mean of steps 950 to 982``."""
    if recent.first_step == recent.last_step:
        return f"of step {recent.first_step:,}"
    return f"mean of steps {recent.first_step:,} to {recent.last_step:,}"
