"""Formats of a report: they render and never decide."""

from diagnose.report.as_json import report_object
from diagnose.report.as_text import fold_ranks, report_text

__all__ = ["fold_ranks", "report_object", "report_text"]
