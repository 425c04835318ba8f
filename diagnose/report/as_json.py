"""A report, the verdict on a hang, or a what-if analysis as one JSON object, schema 1."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from diagnose.findings import Finding
from diagnose.hang.verdict import HangVerdict, hang_finding
from diagnose.model.marks import Mark
from diagnose.pipeline import Report
from diagnose.profiles import StoredProfile, profiles_for
from diagnose.whatif.conclude import Conclusion

SCHEMA = 1


def report_object(report: Report) -> dict[str, Any]:
    """The report as plain values. ``ranks`` and ``hosts`` of a finding are the initiating ones.

    ``exposed``: exposed communication of each axis, in seconds and as a share of the step (``model/exposed.py``). Empty
    if it is not known.
    """
    return {
        "schema": SCHEMA,
        "run": report.run_id,
        "attempt": report.attempt,
        "window": {"first_step": report.window.first_step, "last_step": report.window.last_step},
        "findings": [finding_object(finding, report.profiles) for finding in report.findings],
        "exposed": {
            axis: {"seconds": round(of_axis.seconds, 9), "share": of_axis.share}
            for axis, of_axis in report.exposed.items()
        },
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


def finding_object(finding: Finding, profiles: Iterable[StoredProfile] = ()) -> dict[str, Any]:
    """A finding as plain values. ``profiles``: those of its attempt."""
    return {
        "detector": finding.detector,
        "kind": str(finding.kind),
        "severity": str(finding.severity),
        "ranks": finding.ranks,
        "hosts": finding.hosts,
        "suspects": [
            {"rank": suspect.rank, "host": suspect.host, "role": str(suspect.role)} for suspect in finding.suspects
        ],
        "stage": finding.stage,
        "window": {"first_step": finding.window.first_step, "last_step": finding.window.last_step},
        "seconds_lost": round(finding.seconds_lost, 6),
        "share_lost": round(finding.share_lost, 6),
        "cost_basis": str(finding.basis),
        "confidence": finding.confidence,
        "summary": finding.headline,
        "next_step": finding.next_step,
        "evidence": dict(finding.evidence),
        "profiles": [_profile_object(profile) for profile in profiles_for(finding, profiles)],
    }


def _profile_object(profile: StoredProfile) -> dict[str, Any]:
    first_step, last_step = profile.steps_profiled
    return {"profile": profile.profile_id, "rank": profile.rank, "first_step": first_step, "last_step": last_step}


def hang_object(verdict: HangVerdict) -> dict[str, Any]:
    """The verdict as plain values. ``ranks`` of its finding are the initiating ones.

    ``sources``: the kinds of evidence. If there are several, ``says`` is the verdict from one of them alone.
    """
    finding = hang_finding(verdict)
    findings = [finding_object(finding)] if finding is not None else []
    return {
        "schema": SCHEMA,
        "run": verdict.evidence.run_id,
        "attempt": verdict.evidence.attempt,
        "window": findings[0]["window"] if findings else {"first_step": 0, "last_step": 0},
        "findings": findings,
        "missing_ranks": list(verdict.evidence.missing),
        "sources": [
            {"source": source.name, "ranks": list(source.ranks), "says": source.says}
            for source in verdict.evidence.sources
        ],
        "contradictions": [
            {"ranks": list(contradiction.ranks), "text": contradiction.text}
            for contradiction in verdict.evidence.contradictions
        ],
    }


FIGURES = (
    *("step_time_s", "slowdown", "waste", "by_stage", "by_pp", "by_dp", "by_worker", "m_w", "m_s", "per_step"),
    *("fixing_workers", "steps_replayed", "steps_left_out", "operations"),
)


def whatif_object(conclusion: Conclusion) -> dict[str, Any]:
    """The report's object, and the figures: ratios to the ideal step time; ``by_worker`` is [dp][pp].

    ``step_time_s``: as measured, over the replayed steps (``diagnose/model/operations.py``).
    ``fixing_workers``: the remaining slowdown, and the removed share, with ideal times on the worst workers.
    Figures are null if nothing was replayed, or if the replay differs from the measured steps by more than 5%. ``m_w``,
    ``m_s`` and ``fixing_workers`` are also null below a slowdown of 1.03. The ``window`` of a change is null if the
    change was replayed in all these steps.
    """
    return {
        **report_object(conclusion.report),
        **_figures(conclusion),
        "replay_error": conclusion.replay_error,
        "what_if": [
            {
                "change": fix.change,
                "seconds_saved": fix.saved_s,
                "share_of_step_time": fix.share,
                "window": None if fix.window is None else asdict(fix.window),
            }
            for fix in conclusion.fixes
        ],
    }


def _figures(conclusion: Conclusion) -> dict[str, Any]:
    figures = conclusion.figures
    if figures is None or not conclusion.holds:
        return dict.fromkeys(FIGURES)
    per_step = zip(conclusion.steps.tolist(), (figures.step_s / figures.ideal_step_s).tolist(), strict=True)
    return {
        "step_time_s": conclusion.step_s,
        "slowdown": figures.slowdown,
        "waste": figures.waste,
        "by_stage": dict(figures.by_stage),
        "by_pp": {str(pp): ratio for pp, ratio in enumerate(figures.by_pp.tolist())},
        "by_dp": {str(dp): ratio for dp, ratio in enumerate(figures.by_dp.tolist())},
        "by_worker": figures.by_worker.tolist(),
        "m_w": figures.m_w,
        "m_s": figures.m_s,
        "per_step": {str(step): ratio for step, ratio in per_step},
        "fixing_workers": _fixing(conclusion),
        "steps_replayed": len(figures.rows),
        "steps_left_out": figures.num_left_out,
        "operations": figures.num_operations,
    }


def _fixing(conclusion: Conclusion) -> list[dict[str, float]] | None:
    worst, figures = conclusion.worst_workers, conclusion.figures
    if worst is None or figures is None:
        return None
    ideal_s = float(figures.ideal_step_s.mean())
    return [
        {"workers": number, "slowdown": step_s / ideal_s, "share_of_slowdown": gone}
        for number, step_s, gone in zip(
            worst.num_fixed.tolist(), worst.step_s.tolist(), worst.share_gone(ideal_s).tolist(), strict=True
        )
    ]
