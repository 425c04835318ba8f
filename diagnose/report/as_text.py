"""A report for people: the verdict first, then evidence, then what to do."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from diagnose.findings import Finding, Role, Severity
from diagnose.pipeline import Report
from diagnose.ranges import fold_ranks

_STYLE = {Severity.CRITICAL: "bold red", Severity.WARNING: "bold yellow", Severity.INFO: "bold cyan"}
_INDENT = "    "


def report_text(report: Report) -> RenderableType:
    """The report as something rich prints."""
    heading = _heading(report)
    if not report.findings:
        return Group(Text(f"nothing found: {_looked_at(report)}", style="green"), heading)
    return Group(*(part for finding in report.findings for part in _finding_text(finding)), heading)


def _looked_at(report: Report) -> str:
    if not report.num_steps:
        return "no finished step yet"
    return f"no rank or stage stands out over {report.num_steps} steps of {report.num_ranks} ranks"


def _heading(report: Report) -> Text:
    window = report.window
    return Text(
        f"run {report.run_id}, attempt {report.attempt}, steps {window.first_step} to {window.last_step}, "
        f"{report.num_ranks} ranks",
        style="dim",
    )


def _finding_text(finding: Finding) -> Iterator[RenderableType]:
    yield Text(finding.summary, style=_STYLE[finding.severity])
    yield Text(f"{_INDENT}{finding.kind}, {finding.severity}, confidence {finding.confidence:.0%}")
    yield Text(f"{_INDENT}evidence: {'; '.join(_evidence(finding))}")
    victims = [suspect.rank for suspect in finding.suspects if suspect.role is Role.VICTIM]
    if victims:
        yield Text(f"{_INDENT}waiting for it: rank{'s' if len(victims) > 1 else ''} {fold_ranks(victims)}")
    yield Text(f"{_INDENT}next: {finding.next_step}")
    yield Text("")


def _evidence(finding: Finding) -> Iterator[str]:
    for name, value in finding.evidence.items():
        shown = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        yield f"{name.replace('_', ' ')} {shown}"
    yield f"{finding.seconds_lost:.1f} s lost in steps {finding.window.first_step} to {finding.window.last_step}"
