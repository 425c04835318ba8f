"""Reports and what-if analyses as text for the terminal: verdict first, then evidence, then the next step.

Control characters in text from outside are escaped.
"""

import shlex
import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from diagnose.findings import Finding, Role, Severity
from diagnose.model.exposed import ExposedAxis
from diagnose.model.marks import Loss, Mark
from diagnose.model.run_state import Heard, local_time, not_shipping
from diagnose.pipeline import Report
from diagnose.profiles import profiles_for
from diagnose.ranges import fold_ranks
from diagnose.report.evidence import evidence_in_words
from diagnose.whatif.analysis import WhatIf
from diagnose.whatif.conclude import Conclusion
from telemetry.printable import printable, printable_lines


class Terminal(Console):
    """A console that escapes all unprintable characters, except its own colours.

    JSON is written as ASCII: its escapes are exact, so a reader gets the original characters.
    """

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            text = segment.text if segment.control else printable_lines(segment.text)
            yield segment if text == segment.text else Segment(text, segment.style, segment.control)

    def print_json(self, json: str | None = None, **options: Any) -> None:
        super().print_json(json, **{"ensure_ascii": True, **options})


def line(text: str, style: str = "") -> Text:
    """``text`` as one line. Line ends in names are escaped."""
    return Text(printable(text), style=style)


_STYLE = {Severity.CRITICAL: "bold red", Severity.WARNING: "bold yellow", Severity.INFO: "bold cyan"}
_INDENT = "    "
MOST_MARKS = 12


def report_text(report: Report) -> RenderableType:
    """The report as a text for rich."""
    heading = Group(*(line(text, style="dim") for text in exposed_lines(report.exposed)), _heading(report))
    marks = [line(mark_line(mark), style="dim") for mark in report.marks[-MOST_MARKS:]]
    marks += [line(_loss(loss), style="yellow") for loss in report.losses[-MOST_MARKS:]]
    marks += [line(text, style="bold yellow") for text in _silence(report.heard)]
    if not report.findings:
        return Group(line(f"nothing found: {_looked_at(report)}", style="green"), *marks, heading)
    return Group(*(part for finding in report.findings for part in _finding_text(finding, report)), *marks, heading)


def exposed_lines(exposed: Mapping[str, ExposedAxis]) -> Iterator[str]:
    """``exposed communication in a step: dp 12.0 ms (3.1%), pp 40.2 ms (10.3%)``; nothing if it is not known."""
    if exposed:
        each = (f"{axis} {one.seconds * 1e3:.1f} ms ({one.share:.1%})" for axis, one in exposed.items())
        yield f"exposed communication in a step: {', '.join(each)}"


def mark_line(mark: Mark) -> str:
    """``12:03:44 data0 of host-2 lost its link for 3.1 s, and the job stalled for 3.5 s: ...``"""
    times = f" {mark.count} times" if mark.count > 1 else ""
    lasted = f"{mark.seconds:.1f} s ago, and is still down" if mark.lasts else f"for {mark.seconds:.1f} s"
    more = f", and {len(mark.stretched) - 1} more" * (len(mark.stretched) > 1)
    held = f", and the job stalled for {mark.held_s:.1f} s: {mark.stretched[0]}{more}" if mark.stretched else ""
    return f"{_clock(mark.at_ns)} {mark.device} of {mark.host} lost its link{times} {lasted}{held}"


def _loss(loss: Loss) -> str:
    """``12:03:44 rank 3 lost 16384 records of 2.1 s, before step 812: rank files reached their size limit ...``"""
    how_many, _, why = loss.text.partition(": ")
    return f"{_clock(loss.at_ns)} rank {loss.rank} lost {how_many}, before step {loss.step}: {why}"


def _silence(heard: Heard | None) -> Iterator[str]:
    """Lines for an attempt that has not ended and sends no data, because the report may be out of date."""
    if silent := not_shipping(heard):
        yield silent.sentence
        yield f"{_INDENT}next: {silent.next_step}"


def _clock(at_ns: int) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at_ns / 1e9))


def _looked_at(report: Report) -> str:
    if not report.num_steps:
        return "no step is complete" if _end(report.heard) else "no completed step yet"
    return f"no slow rank or stage in {report.num_steps} steps of {report.num_ranks} ranks"


def _heading(report: Report) -> Text:
    steps = report.window.in_words if report.num_steps else "no completed step"
    return line(
        f"run {report.run_id}, attempt {report.attempt}, {steps}, {report.num_ranks} ranks{_end(report.heard)}",
        style="dim",
    )


def _end(heard: Heard | None) -> str:
    """End of an attempt; empty if it continues, or if no agent watched it."""
    return f", {heard.state} {local_time(heard.heard_ns)}" if heard is not None and heard.has_ended else ""


def _finding_text(finding: Finding, report: Report) -> Iterator[RenderableType]:
    yield line(finding.headline, style=_STYLE[finding.severity])
    yield line(f"{_INDENT}{finding.kind}, {finding.severity}, confidence {finding.confidence:.0%}")
    yield line(f"{_INDENT}evidence: {'; '.join(_evidence(finding))}")
    victims = [suspect.rank for suspect in finding.suspects if suspect.role is Role.VICTIM]
    if victims:
        yield line(f"{_INDENT}waiting for it: rank{'s' if len(victims) > 1 else ''} {fold_ranks(victims)}")
    yield line(f"{_INDENT}next: {finding.next_step}")
    if profiles := profiles_for(finding, report.profiles):
        of_run = f"{shlex.quote(report.run_id)} --attempt {report.attempt}"
        yield line(f"{_INDENT}profile: rankscope profile {of_run} --get {profiles[0].profile_id[:8]} --out DIR")
    yield Text("")


def _evidence(finding: Finding) -> Iterator[str]:
    for name, value in evidence_in_words(finding.evidence):
        yield f"{name} {value}"
    yield finding.cost


MOST = 8
"""Number of rows of a table: the worst ones."""


def whatif_text(conclusion: Conclusion) -> RenderableType:
    """The analysis as a text for rich."""
    figures, parts = conclusion.figures, list[RenderableType]()
    if figures is not None and conclusion.replay_error is not None and conclusion.holds:
        headline = (
            f"a step takes {conclusion.step_s:.3f} s: {figures.slowdown:.3f}x as long as with equally fast workers, "
            f"{figures.waste:.1%} of the time is lost. "
            f"The replay differs from the measured steps by {conclusion.replay_error:.1%}"
        )
        parts += [line(headline, style="bold"), Text(), _shares(figures)]
        if figures.m_w is not None and figures.m_s is not None:
            slowest = f"the slowest 3% of workers explain {max(0.0, figures.m_w):.0%} of the slowdown"
            last = f", the last pipeline stage {max(0.0, figures.m_s):.0%}" * (figures.topology.pp > 1)
            parts.append(line(slowest + last))
        parts.append(Text())
    if conclusion.fixes:
        parts += [_gains(conclusion), Text()]
    return Group(*parts, report_text(conclusion.report))


def _shares(figures: WhatIf) -> Table:
    """Step time with only one part as recorded, relative to the ideal step."""
    table = Table(
        title="step time with one part as measured and the rest ideal, relative to the ideal step",
        title_justify="left",
        box=None,
    )
    for name in ("pipeline rank, replica", "", "stage", ""):
        table.add_column(name, header_style="bold")
    places = [
        *((f"pp{pp}", ratio) for pp, ratio in enumerate(figures.by_pp.tolist()) if figures.topology.pp > 1),
        *((figures.topology.replica(dp), ratio) for dp, ratio in enumerate(figures.by_dp.tolist())),
    ]
    stages = sorted(figures.by_stage.items(), key=lambda item: -item[1])[:MOST]
    places = sorted(places, key=lambda item: -item[1])[:MOST]
    columns = ([(name, f"{ratio:.3f}x") for name, ratio in part] for part in (places, stages))
    for place, stage in zip_longest(*columns, fillvalue=("", "")):
        table.add_row(*place, *stage)
    return table


def _gains(conclusion: Conclusion) -> Table:
    table = Table(box=None, header_style="bold")
    for name in ("what if", "seconds saved", "of step time"):
        table.add_column(name, justify="left" if name == "what if" else "right")
    for fix in conclusion.fixes:
        gain = (f"{fix.saved_s:.2f}", f"{fix.share:.1%}") if fix.gains else ("none", "")
        table.add_row(fix.in_words, *gain)
    return table
