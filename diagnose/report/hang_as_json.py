"""A hang's verdict as one JSON object: that of ``diagnose``, and the ranks that left nothing."""

from typing import Any

from diagnose.hang.finding import hang_finding
from diagnose.hang.verdict import HangVerdict
from diagnose.report.as_json import SCHEMA, finding_object


def hang_object(verdict: HangVerdict) -> dict[str, Any]:
    """The verdict as plain values; ``ranks`` of its finding holds the initiating ones."""
    finding = hang_finding(verdict)
    findings = [finding_object(finding)] if finding is not None else []
    return {
        "schema": SCHEMA,
        "run": verdict.evidence.run_id,
        "attempt": verdict.evidence.attempt,
        "window": findings[0]["window"] if findings else {"first_step": 0, "last_step": 0},
        "findings": findings,
        "missing_ranks": list(verdict.evidence.missing),
    }
