"""From a stored run to a report: run every detector, drop the symptoms, sort the findings."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from diagnose.causes import is_symptom, without_symptoms
from diagnose.detectors import DETECTORS, OF_WHOLE_JOB, Detector
from diagnose.detectors.evidence import has_tiny_steps, insufficient
from diagnose.findings import NOT_BY_COST, Finding, Kind, Severity, StepWindow, limit_by_cost
from diagnose.hang.stored import stored_verdict
from diagnose.hang.verdict import HangVerdict, hang_finding
from diagnose.model.exposed import ExposedAxis, exposed_figures
from diagnose.model.load import load_view
from diagnose.model.marks import Loss, Mark, load_losses, marks_of
from diagnose.model.outage_effect import with_effects
from diagnose.model.roles import role_views
from diagnose.model.run_state import Heard, heard_of
from diagnose.model.view import RunView
from diagnose.profiles import StoredProfile
from diagnose.whatif.cost import with_costs
from telemetry.errors import UnreadableError
from telemetry.stores.interface import Reader

_URGENCY = {Severity.CRITICAL: 0, Severity.WARNING: 1, Severity.INFO: 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Findings about one attempt over a window of steps, the worst first."""

    run_id: str
    attempt: int
    window: StepWindow
    num_steps: int
    num_ranks: int
    findings: tuple[Finding, ...]
    exposed: Mapping[str, ExposedAxis] = field(default_factory=dict)
    """Exposed communication of each axis. Empty if it is not known."""
    marks: tuple[Mark, ...] = ()
    """Events that are no findings, in order of time."""
    losses: tuple[Loss, ...] = ()
    """Missing records, in order of time."""
    heard: Heard | None = None
    """Whether the attempt still runs and sends records; None without a store."""

    profiles: tuple[StoredProfile, ...] = ()
    """Profiles of the attempt, the newest first. Findings list those of their ranks."""

    @property
    def exit_status(self) -> int:
        """1 if a finding is more severe than info. Missing evidence does not count."""
        return int(
            any(
                finding.severity is not Severity.INFO and finding.kind is not Kind.INSUFFICIENT_EVIDENCE
                for finding in self.findings
            )
        )


def diagnose_view(view: RunView) -> Report:
    """All findings about a view with their costs, the worst first. Profiled steps are left out."""
    view = view.without_profiled()
    report = without_costs(view)
    return replace(report, findings=tuple(worst_first(each.finding for each in with_costs(report.findings, view))))


def without_costs(view: RunView) -> Report:
    """The report of :func:`diagnose_view`, but with the excess of slow ranks in place of their cost to the job."""
    view = with_effects(view)
    roles = role_views(view)
    found = [
        limit_by_cost(finding)
        for detect in DETECTORS
        for seen in ([view] if detect in OF_WHOLE_JOB else roles)
        for finding in _run_detector(detect, seen)
    ]
    if has_tiny_steps(view):
        found = [finding for finding in found if finding.kind in NOT_BY_COST]
    findings = worst_first(without_symptoms(found))
    return Report(
        run_id=view.run_id,
        attempt=view.attempt,
        window=view.window,
        num_steps=len(view.steps),
        num_ranks=view.topology.world_size,
        findings=tuple(findings),
        exposed=exposed_figures(view),
        marks=marks_of(view),
        profiles=view.profiled.profiles,
    )


def _run_detector(detect: Detector, view: RunView) -> list[Finding]:
    """Findings of one detector. If it fails on unexpected data, one finding reports this; other detectors continue."""
    try:
        return detect(view)
    except Exception as error:
        name = detect.__name__.removeprefix("detect_").replace("_", "-")
        summary = f"the detector {name} failed: {type(error).__name__}: {error}"
        next_step = "report this to the rankscope project, if possible with the run"
        return [insufficient(view, summary, next_step, detector=name)]


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """The findings in order: by severity, then causes before symptoms, then by the time that they cost."""
    return sorted(
        findings,
        key=lambda finding: (_URGENCY[finding.severity], not _shows_cause(finding), -finding.seconds_lost),
    )


def _shows_cause(finding: Finding) -> bool:
    return not is_symptom(finding) and finding.kind is not Kind.INSUFFICIENT_EVIDENCE


def diagnose_run(reader: Reader, run_id: str, attempt: int, window: StepWindow | None = None) -> Report:
    """All findings about a stored attempt: its stall, if any, then slowdowns. Without a window: its newest 200 steps.

    Raises:
        UnknownRunError: the store holds no such attempt.
        UnreachableError: the store does not answer.
    """
    report = diagnose_view(load_view(reader, run_id, attempt, window))
    report = replace(
        report,
        losses=load_losses(reader, run_id, attempt),
        heard=heard_of(reader, run_id, attempt),
    )
    return stall_first(report, reader)


def stall_first(report: Report, reader: Reader) -> Report:
    """The report with the stall of the attempt, if any, as its first finding. Evidence that cannot be read must not
    hide the other findings: ``diagnose hang`` reports it."""
    with suppress(UnreadableError):
        return with_stall(report, stored_verdict(reader, report.run_id, report.attempt))
    return report


def with_stall(report: Report, verdict: HangVerdict | None) -> Report:
    """``report`` with the finding of ``verdict``, if there is one, as its first."""
    stall = None if verdict is None else hang_finding(verdict)
    return report if stall is None else replace(report, findings=(stall, *_without_twins(stall, report.findings)))


def _without_twins(stall: Finding, findings: tuple[Finding, ...]) -> list[Finding]:
    """``findings`` without NIC findings about the card that explains the stall: its finding names the card, too."""
    device = stall.evidence.get("device")
    return [
        finding
        for finding in findings
        if finding.kind is not Kind.NIC_FLAP or (finding.evidence.get("device"), finding.hosts) != (device, stall.hosts)
    ]
