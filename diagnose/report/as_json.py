"""A report as one JSON object, schema 1: what scripts and tests read."""

from dataclasses import asdict
from typing import Any

from diagnose.findings import Finding
from diagnose.model.marks import Mark
from diagnose.pipeline import Report

SCHEMA = 1


def report_object(report: Report) -> dict[str, Any]:
    """The report as plain values; ``ranks`` and ``hosts`` hold the initiating ones."""
    return {
        "schema": SCHEMA,
        "run": report.run_id,
        "attempt": report.attempt,
        "window": {"first_step": report.window.first_step, "last_step": report.window.last_step},
        "findings": [finding_object(finding) for finding in report.findings],
        "marks": [mark_object(mark) for mark in report.marks],
        "losses": [asdict(loss) for loss in report.losses],
        "state": str(report.heard.state) if report.heard else None,
        "heard_ns": report.heard.heard_ns if report.heard else None,
    }


def mark_object(mark: Mark) -> dict[str, Any]:
    """A mark as plain values."""
    return {
        "name": mark.name,
        "host": mark.host,
        "device": mark.device,
        "at_ns": mark.at_ns,
        "seconds": round(mark.seconds, 6),
        "count": mark.count,
        "lasts": mark.lasts,
        "held_s": round(mark.held_s, 6),
        "stretched": list(mark.stretched),
    }


def finding_object(finding: Finding) -> dict[str, Any]:
    """A finding as plain values."""
    return {
        "detector": finding.detector,
        "kind": str(finding.kind),
        "severity": str(finding.severity),
        "ranks": finding.ranks,
        "hosts": finding.hosts,
        "suspects": [{"rank": one.rank, "host": one.host, "role": str(one.role)} for one in finding.suspects],
        "stage": finding.stage,
        "window": {"first_step": finding.window.first_step, "last_step": finding.window.last_step},
        "seconds_lost": round(finding.seconds_lost, 6),
        "confidence": finding.confidence,
        "summary": finding.summary,
        "next_step": finding.next_step,
        "evidence": dict(finding.evidence),
    }
