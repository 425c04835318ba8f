"""The overview of a run: the worst finding in a sentence, the newest numbers, the curves, all findings."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

import dash_mantine_components as dmc
import numpy as np
from dash import dcc, html
from dash.development.base_component import Component

from diagnose.findings import Basis, Finding
from diagnose.hang.verdict import HangVerdict
from diagnose.model.run_state import RunState
from diagnose.run_figures import MFU
from telemetry.errors import UnreadableError
from ui.dashboard.data import Reads
from ui.dashboard.data.cache import StillWorking
from ui.dashboard.data.goodput import decisions_of
from ui.dashboard.data.run_rows import STEP_TIME, TOKENS, recent_means
from ui.dashboard.pages.annotations import draw_run_notes, draw_tags
from ui.dashboard.pages.findings import findings_list, headline, looking, marks_list
from ui.dashboard.pages.hang.verdict import hang_finding, hang_headline, reading_evidence, since_ns
from ui.dashboard.pages.interface import Page, Region, region_id
from ui.dashboard.pages.overview.curves import CHARTS, curve_values, curves_skeleton, draw_curve_controls, own_charts
from ui.dashboard.pages.panels import card, loading, mean_of_steps, panel, table
from ui.dashboard.pages.profiling import draw_profiles, finding_profiles, profile_freshness
from ui.dashboard.records import MarkRow, RankState, RunFacts, RunSummary, StepTimes
from ui.dashboard.view_state import View, ViewState
from ui.dashboard.wording import axes_text, count, duration, long_duration, stamp


def seconds_lost(findings: Iterable[Finding], steps: StepTimes) -> float:
    """Job time that ``findings`` cost, in seconds. In each step, only the finding with the largest cost counts. The
    excess of a rank does not count, because its cost to the job is unknown.

        step            |  1  |  2  |  3  |  4  |      each of 10 s
        straggler       |  2     2     2     2  |      8 s lost
        loss of link          |  9  |                  9 s lost
        together        |  2  |  9  |  2  |  2  |      15 s lost, not 17

    A finding takes an equal share of each step of its window. So findings together never cost less than the worst of
    them alone, and never more than the steps took. The loss in steps that have not ended is added.
    """
    share, unended_s = np.zeros(len(steps.step)), 0.0
    for finding in findings:
        if finding.basis is Basis.EXCESS:
            continue
        window = finding.window
        inside = (steps.step >= window.first_step) & (steps.step <= window.last_step)
        whole_s = float(steps.duration_ns[inside].sum()) / 1e9
        if whole_s:
            share[inside] = np.maximum(share[inside], finding.seconds_lost / whole_s)
        else:
            unended_s = max(unended_s, finding.seconds_lost)
    return float((share * steps.duration_ns).sum()) / 1e9 + unended_s


RECENT: dict[str, tuple[str, Callable[[float], str]]] = {
    "Step time": (STEP_TIME, duration),
    "Tokens/s": (TOKENS, "{:,.0f}".format),
    "MFU": (MFU, "{:.1%}".format),
}
MAX_DECISIONS = 50
MAX_BESIDE = 7
"""Largest number of cards in a row of a wide window."""


def skeleton(own_names: Sequence[str] = ()) -> Component:
    texts = [html.Div(loading(160), id=region_id(name)) for name in ("findings", "events")]
    return dmc.Stack(
        [
            html.Div(id=region_id("tags")),
            html.Div(loading(140), id=region_id("verdict")),
            html.Div(loading(90), id=region_id("numbers")),
            html.Div(id=region_id("run-notes")),
            curves_skeleton(own_names),
            dmc.SimpleGrid(texts, cols={"base": 1, "lg": 2}),
            html.Div(id=region_id("profiles")),
            html.Div(id=region_id("decisions")),
        ],
        gap="md",
    )


def _draw_verdict(state: ViewState, reads: Reads) -> Component:
    facts = reads.facts(state)
    try:
        stall = _stall(facts, reads)
    except StillWorking:
        return reading_evidence(facts)
    if stall is not None:
        return hang_headline(stall, facts, state)
    report = reads.reports.of(facts.summary)
    return looking(facts) if report is None else headline(report, facts, state)


def draw_numbers(state: ViewState, reads: Reads) -> Component:
    """Recent means as in the list of runs, the newest step, and the lost time."""
    cards = [card(name, value, note) for name, value, note in _numbers(reads.facts(state), reads)]
    num_rows = max(1, -(-len(cards) // MAX_BESIDE))  # of equal length, so that no card is alone
    return dmc.SimpleGrid(cards, cols={"base": 2, "sm": 3, "lg": -(-len(cards) // num_rows)}, spacing="sm")


def _draw_findings(state: ViewState, reads: Reads) -> Component:
    facts = reads.facts(state)
    report = reads.reports.of(facts.summary)
    stall = None
    with suppress(StillWorking):  # the verdict says that the evidence is being read
        stall = _stall(facts, reads)
    stalled = [] if stall is None else [hang_finding(stall, facts, state)]
    if report is None:
        return panel("Findings", dmc.Stack([*stalled, looking(facts)], gap="sm"))
    below = partial(finding_profiles, facts=facts, reads=reads)
    slow = [findings_list(report, facts, state, below)] if report.findings or stall is None else []
    marks = [marks_list(report, facts, state)] if report.marks else []
    return panel("Findings", dmc.Stack([*stalled, *slow, *marks], gap="sm"))


def _stall(facts: RunFacts, reads: Reads) -> HangVerdict | None:
    """The verdict. Unreadable evidence is an error on the hang page only."""
    try:
        verdict = reads.hang(facts)
    except UnreadableError:
        return None
    return None if verdict is None or verdict.kind is None else verdict


def _draw_events(state: ViewState, reads: Reads) -> Component:
    facts = reads.facts(state)
    parts = [_ranks(reads.ranks(facts.summary), facts.summary), _marks(reads.marks(facts.summary))]
    return panel("Ranks and marks", dmc.Stack(parts, gap="sm"))


def _numbers(facts: RunFacts, reads: Reads) -> Iterator[tuple[str, str, str]]:
    means = recent_means(reads, facts.summary)
    for title, (name, as_text) in RECENT.items():
        if name in means:
            yield title, as_text(means[name].mean), mean_of_steps(means[name])
    loss = reads.series(facts.summary).get("loss")
    if loss is not None:
        yield "Loss", f"{loss.value[-1]:.3f}", f"{loss.value[0]:.3f} at the first step"
    yield "Step", f"{int(facts.steps.step[-1]):,}", f"{len(facts.steps.step):,} stored"
    yield from _exposed(facts, reads)
    yield _price(facts, reads)


def _exposed(facts: RunFacts, reads: Reads) -> Iterator[tuple[str, str, str]]:
    """The axis with most exposed communication, and all axes. Nothing if it is not known."""
    report = reads.reports.of(facts.summary)
    if report is not None and report.exposed:
        axis, most = max(report.exposed.items(), key=lambda item: item[1].share)
        names = {axis: axes_text(axis, facts.topology) for axis in report.exposed}
        each = ", ".join(f"{names[axis]} {of_axis.share:.1%}" for axis, of_axis in report.exposed.items())
        where = f"of {report.window.in_words} (axes can overlap): {each}"
        yield "Exposed communication", f"{names[axis]} {most.share:.1%}", where


def _price(facts: RunFacts, reads: Reads) -> tuple[str, str, str]:
    try:
        stall = _stall(facts, reads)
    except StillWorking:
        stall = None
    if stall is not None and (began_ns := since_ns(stall)):
        return _stall_time(stall, began_ns, facts, reads)
    report = reads.reports.of(facts.summary)
    if report is None:
        return "Lost to findings", "…", ""
    unknown = sum(finding.basis is Basis.EXCESS for finding in report.findings)
    lost_s = seconds_lost(report.findings, facts.steps)
    if unknown and not lost_s:
        return "Lost to findings", "unknown", f"no cost is known for {count(unknown, 'finding')}"
    but = (
        f"; not known for {count(unknown, 'finding')}"
        if unknown
        else "; in each step only the most expensive one counts"
    )
    return "Lost to findings", f"{lost_s:.1f} s", f"sum over the findings{but}"


def _stall_time(stall: HangVerdict, began_ns: int, facts: RunFacts, reads: Reads) -> tuple[str, str, str]:
    """The duration of the stall until the last check, or until the job ended."""
    taken_ns = stall.evidence.taken_ns
    if facts.summary.state in (RunState.DIED, RunState.ENDED):
        end_ns = max(taken_ns, reads.heard_ns(facts.summary))
        return "Stalled", long_duration((end_ns - began_ns) / 1e9), "until the job ended"
    return "Stalled", long_duration((taken_ns - began_ns) / 1e9), "at the last check"


def _ranks(ranks: list[RankState], run: RunSummary) -> Component:
    if not ranks:
        return dmc.Text("No agent has sent heartbeats of the ranks.", size="sm", c="dimmed")
    dead = [rank.rank for rank in ranks if not rank.alive and not rank.ended]
    dropped = sum(rank.dropped for rank in ranks)
    running, ended = sum(rank.alive for rank in ranks), sum(rank.ended for rank in ranks)
    text = f"{count(len(ranks), 'rank')}: {running} running, {ended} ended normally, {len(dead)} lost"
    if run.heard.is_silent:
        text += f" (last data: {stamp(run.heard.heard_ns)})"
    lines = [dmc.Text(text, size="sm")]
    if dead:
        named = ", ".join(map(str, dead[:16])) + (" …" if len(dead) > 16 else "")
        lines.append(dmc.Text(f"Process lost without a normal exit: rank {named}", size="sm", c="red", fw=600))
    if dropped:
        lines.append(
            dmc.Text(f"{count(dropped, 'record')} dropped: some spans are missing on the pages", size="sm", c="orange")
        )
    return dmc.Stack(lines, gap=4)


def _marks(marks: list[MarkRow]) -> Component:
    if not marks:
        return dmc.Text("No rank recorded a mark.", size="sm", c="dimmed")
    rows = [
        (_whole(stamp(mark.at_ns)), f"{mark.step:,}", str(mark.rank), _whole(mark.name), mark.text) for mark in marks
    ]
    return table(("At", "Step", "Rank", "Mark", "Text"), rows, min_width_px=420)


def _whole(text: str) -> Component:
    """Text that is not divided into lines."""
    return html.Span(text, className="whole-word")


def draw_decisions(state: ViewState, reads: Reads) -> Component | None:
    """The newest decisions of the driver in all attempts of the run. None without a driver."""
    run = reads.newest(state)
    decisions = decisions_of(run.run_id, reads)
    if not decisions:
        return None
    rows = [
        (
            _whole(stamp(decision.at_ns)),
            str(decision.attempt),
            _whole(decision.name),
            _whole(decision.node or "the job"),
            decision.reason,
        )
        for decision in decisions[: -MAX_DECISIONS - 1 : -1]
    ]
    goodput = replace(state, view=View.GOODPUT, run=run.run_id, attempt=run.attempt)
    link = dcc.Link("Show goodput", href=goodput.search())
    content = table(("At", "Attempt", "Decision", "About", "Reason"), rows, min_width_px=480)
    return panel("Decisions of the driver, the newest first", dmc.Stack([content, link], gap="xs"))


PAGE = Page(
    title="Overview",
    skeleton=skeleton,
    own_charts=own_charts,
    regions={
        "tags": Region(draw=draw_tags, quiet=True),
        "verdict": Region(draw=_draw_verdict),
        "numbers": Region(draw=draw_numbers, quiet=True),
        "run-notes": Region(draw=draw_run_notes, quiet=True),
        "curve-controls": Region(draw=draw_curve_controls, quiet=True),
        "findings": Region(draw=_draw_findings, quiet=True),
        "events": Region(draw=_draw_events, quiet=True),
        "profiles": Region(draw=draw_profiles, quiet=True),
        "decisions": Region(draw=draw_decisions, quiet=True),
    },
    charts=CHARTS,
    control_values=curve_values,
    preload=draw_numbers,
    freshness=lambda state, reads: [
        *reads.stall_freshness(state),
        *reads.report_freshness(state),
        *profile_freshness(state, reads),
        len(decisions_of(reads.newest(state).run_id, reads)),
    ],
)
