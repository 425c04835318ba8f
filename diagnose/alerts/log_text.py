"""The findings log as text and as JSON."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rich.text import Text

from diagnose.alerts.listing import aligned
from diagnose.alerts.logged import LoggedFinding, LogPage
from diagnose.alerts.notice import NS_PER_S, duration_text
from diagnose.findings import LEAST_COST_S, cost_in_words
from diagnose.model.run_state import local_time
from diagnose.ranges import list_some
from telemetry.printable import one_line

_COLUMNS = ("state", "severity", "kind", "run", "where", "since", "lasted", "fingerprint", "what")
_MOST_CHARACTERS = 500


def log_object(page: LogPage, now_ns: int) -> dict[str, Any]:
    """``{"schema": 1, "total": number, "findings": [...]}``."""
    findings = [_finding_object(finding, now_ns) for finding in page.findings]
    return {"schema": 1, "total": page.total, "findings": findings}


def _finding_object(finding: LoggedFinding, now_ns: int) -> dict[str, Any]:
    same = ("attempt", "fingerprint", "kind", "raised_ns", "changed_ns", "ranks", "device", "stage")
    onset = finding.onset
    return {
        "run": finding.run_id,
        **{name: getattr(finding, name) for name in (*same, "summary", "next_step", "seconds_lost")},
        "state": str(finding.state(now_ns)),
        "severity": str(finding.severity),
        "cost_basis": str(finding.basis),
        "hosts": list(finding.hosts),
        "onset": onset and onset.as_object(),
        "explained_by": finding.cause or None,
        "silenced_until_ns": finding.quiet.silenced_until_ns if finding.quiet else 0,
        "actions": [asdict(action) for action in finding.actions],
    }


def log_text(page: LogPage, now_ns: int, *, first: int) -> Text:
    """One line for each finding, then its actions. Control characters are escaped.

    ``first``: number of the first finding on this page.
    """
    if not page.findings:
        return Text(
            f"this page is empty: only {page.total:,} findings match"
            if page.total
            else "no finding matches the conditions"
        )
    rows = [
        _COLUMNS,
        *(tuple(one_line(cell, _MOST_CHARACTERS) for cell in _cells(each, now_ns)) for each in page.findings),
    ]
    head, *lines = aligned(rows)
    texts = [Text(head, style="bold")]
    for finding, line in zip(page.findings, lines, strict=True):
        texts += [Text(line), *(Text(f"    {one_line(action.in_words)}") for action in finding.actions)]
    last = first + len(page.findings) - 1
    return Text("\n").join([*texts, Text(f"{first:,} to {last:,} of {page.total:,}, the newest first")])


def _cells(finding: LoggedFinding, now_ns: int) -> Iterator[str]:
    end_ns = finding.changed_ns if finding.is_resolved else now_ns
    ranks = f"rank {finding.ranks}" if finding.ranks else ""
    hosts = list_some(finding.hosts, 2) if finding.hosts else ""
    yield str(finding.state(now_ns))
    yield str(finding.severity)
    yield finding.kind
    yield f"{finding.run_id}/{finding.attempt}"
    yield ", ".join(filter(None, (ranks, hosts, finding.device))) or finding.stage
    yield local_time(finding.since_ns)
    yield duration_text((end_ns - finding.since_ns) / NS_PER_S)
    yield finding.fingerprint
    cost = cost_in_words(finding.seconds_lost, finding.basis) if finding.seconds_lost >= LEAST_COST_S else ""
    onset = f"since {finding.onset.in_words}" if finding.onset else ""
    yield " | ".join(filter(None, (finding.summary, cost, onset, "" if finding.is_resolved else finding.next_step)))
