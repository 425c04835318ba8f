"""Formats of a report: they render and never decide."""

from diagnose.ranges import fold_ranks
from diagnose.report.as_json import report_object
from diagnose.report.as_text import report_text

__all__ = ["fold_ranks", "report_object", "report_text"]
