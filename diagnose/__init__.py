"""Diagnosis of a run: why it is slow or stalled, which rank or host causes it, and what it costs."""

from diagnose.findings import Finding, Kind, Role, Severity, StepWindow, Suspect
from diagnose.model.load import load_view, newest_attempt
from diagnose.model.view import RunView
from diagnose.pipeline import Report, diagnose_run, diagnose_view

__all__ = [
    "Finding",
    "Kind",
    "Report",
    "Role",
    "RunView",
    "Severity",
    "StepWindow",
    "Suspect",
    "diagnose_run",
    "diagnose_view",
    "load_view",
    "newest_attempt",
]
