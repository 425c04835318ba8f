"""Formats of a report: they render and never decide."""

from diagnose.report.ablation_report import COLUMNS as ABLATION_COLUMNS
from diagnose.report.ablation_report import ablation_cells, ablation_object, ablation_text
from diagnose.report.as_json import hang_object, report_object, whatif_object
from diagnose.report.as_text import report_text, whatif_text
from diagnose.report.comparison_report import COLUMNS as COMPARISON_COLUMNS
from diagnose.report.comparison_report import comparison_cells, comparison_object, comparison_sides, comparison_text
from diagnose.report.comparison_report import headline as comparison_headline
from diagnose.report.goodput_report import goodput_object, goodput_text
from diagnose.report.hang_as_text import hang_text

__all__ = [
    "ABLATION_COLUMNS",
    "COMPARISON_COLUMNS",
    "ablation_cells",
    "ablation_object",
    "ablation_text",
    "comparison_cells",
    "comparison_headline",
    "comparison_object",
    "comparison_sides",
    "comparison_text",
    "goodput_object",
    "goodput_text",
    "hang_object",
    "hang_text",
    "report_object",
    "report_text",
    "whatif_object",
    "whatif_text",
]
