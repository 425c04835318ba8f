"""A report for people: the verdict first, then evidence, then what to do."""

import time
from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from diagnose.findings import Finding, Role, Severity
from diagnose.model.losses import Loss
from diagnose.model.marks import Mark
from diagnose.model.not_shipping import local_time, not_shipping
from diagnose.model.run_state import Heard
from diagnose.pipeline import Report
from diagnose.ranges import fold_ranks
from diagnose.report.terminal import line

_STYLE = {Severity.CRITICAL: "bold red", Severity.WARNING: "bold yellow", Severity.INFO: "bold cyan"}
_INDENT = "    "
MOST_MARKS = 12


def report_text(report: Report) -> RenderableType:
    """The report as something rich prints."""
    heading = _heading(report)
    marks = [line(mark_line(mark), style="dim") for mark in report.marks[-MOST_MARKS:]]
    marks += [line(_loss(loss), style="yellow") for loss in report.losses[-MOST_MARKS:]]
    marks += [line(words, style="bold yellow") for words in _silence(report.heard)]
    if not report.findings:
        return Group(line(f"nothing found: {_looked_at(report)}", style="green"), *marks, heading)
    return Group(*(part for finding in report.findings for part in _finding_text(finding)), *marks, heading)


def mark_line(mark: Mark) -> str:
    """``12:03:44 data0 of host-2 lost its link for 3.1 s, and the job stood still for 3.5 s: ...``"""
    times = f" {mark.count} times" if mark.count > 1 else ""
    lasted = f"{mark.seconds:.1f} s ago, and it is down" if mark.lasts else f"for {mark.seconds:.1f} s"
    held = f", and the job stood still for {mark.held_s:.1f} s: {mark.stretched[0]}" if mark.stretched else ""
    return f"{_clock(mark.at_ns)} {mark.device} of {mark.host} lost its link{times} {lasted}{held}"


def _loss(loss: Loss) -> str:
    """``12:03:44 rank 3 misses 16384 records of 2.1 s, before step 812: rank files were at their cap ...``"""
    how_many, _, why = loss.text.partition(": ")
    return f"{_clock(loss.at_ns)} rank {loss.rank} misses {how_many}, before step {loss.step}: {why}"


def _silence(heard: Heard | None) -> Iterator[str]:
    """For an attempt that has not ended and does not ship: the report may be out of date."""
    if silent := not_shipping(heard):
        yield silent.sentence
        yield f"{_INDENT}next: {silent.next_step}"


def _clock(at_ns: int) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at_ns / 1e9))


def _looked_at(report: Report) -> str:
    if not report.num_steps:
        return "no step was finished" if _end(report.heard) else "no finished step yet"
    return f"no rank or stage stands out over {report.num_steps} steps of {report.num_ranks} ranks"


def _heading(report: Report) -> Text:
    steps = report.window.in_words if report.num_steps else "no finished step"
    return line(
        f"run {report.run_id}, attempt {report.attempt}, {steps}, {report.num_ranks} ranks{_end(report.heard)}",
        style="dim",
    )


def _end(heard: Heard | None) -> str:
    """When an attempt ended or died; nothing of one that goes on, or that nobody watched."""
    return f", {heard.state} {local_time(heard.heard_ns)}" if heard is not None and heard.has_ended else ""


def _finding_text(finding: Finding) -> Iterator[RenderableType]:
    yield line(finding.summary, style=_STYLE[finding.severity])
    yield line(f"{_INDENT}{finding.kind}, {finding.severity}, confidence {finding.confidence:.0%}")
    yield line(f"{_INDENT}evidence: {'; '.join(_evidence(finding))}")
    victims = [suspect.rank for suspect in finding.suspects if suspect.role is Role.VICTIM]
    if victims:
        yield line(f"{_INDENT}waiting for it: rank{'s' if len(victims) > 1 else ''} {fold_ranks(victims)}")
    yield line(f"{_INDENT}next: {finding.next_step}")
    yield Text("")


def _evidence(finding: Finding) -> Iterator[str]:
    for name, value in finding.evidence.items():
        shown = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        yield f"{name.replace('_', ' ')} {shown}"
    yield f"{finding.seconds_lost:.1f} s lost in {finding.window.in_words}"
