"""Diagnosis of a run: why it is slow or stalled, which rank or host causes it, and what it costs."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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

_MODULE_OF = {
    **dict.fromkeys(("Finding", "Kind", "Role", "Severity", "StepWindow", "Suspect"), "diagnose.findings"),
    **dict.fromkeys(("load_view", "newest_attempt"), "diagnose.model.load"),
    "RunView": "diagnose.model.view",
    **dict.fromkeys(("Report", "diagnose_run", "diagnose_view"), "diagnose.pipeline"),
}

if not TYPE_CHECKING:  # a type checker would take any name as one of this module

    def __getattr__(name):
        """A name of ``__all__``, on first use: modules below this package must not load every detector."""
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = getattr(import_module(_MODULE_OF[name]), name)
        return globals()[name]
