"""Ask every detector, order what they say: the one way from a stored run to a report."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace

from diagnose.detectors import DETECTORS, Detector
from diagnose.detectors.evidence import has_tiny_steps, insufficient
from diagnose.findings import NOT_BY_COST, Finding, Kind, Role, Severity, StepWindow, limit_by_cost
from diagnose.hang.finding import hang_finding
from diagnose.hang.stored import stored_verdict
from diagnose.hang.verdict import HangVerdict
from diagnose.model.load import load_view
from diagnose.model.marks import Loss, Mark, load_losses, marks_of
from diagnose.model.outage_effect import with_effects
from diagnose.model.run_state import Heard, heard_of
from diagnose.model.view import RunView
from telemetry.errors import UnreadableError
from telemetry.stores.interface import Reader

MUCH = 0.4
"""Share of a symptom's cost and of its steps that a cause must have to explain it."""
MUCH_OF_LATENESS = 0.15
"""The same where launches come later and later: their cost is what they grew by, and one of many waits. Likewise where
late ranks compute longer than their peers: on crowded cores more work takes several times its processor time."""
_NETWORK = (Kind.SLOW_LINK, Kind.NIC_FLAP)
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
    marks: tuple[Mark, ...] = ()
    """What happened that is no finding, in order of time."""
    losses: tuple[Loss, ...] = ()
    """Where records are missing, likewise."""
    heard: Heard | None = None
    """Whether the attempt goes on and ships; None where no store was asked."""

    @property
    def exit_status(self) -> int:
        """1 where a finding is more than information. Missing evidence does not count."""
        wrong = (one for one in self.findings if one.kind is not Kind.INSUFFICIENT_EVIDENCE)
        return int(any(one.severity is not Severity.INFO for one in wrong))


def diagnose_view(view: RunView) -> Report:
    """All findings about a view, the worst first."""
    view = with_effects(view)
    found = [limit_by_cost(finding) for detect in DETECTORS for finding in _asked(detect, view)]
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
        marks=marks_of(view),
    )


def _asked(detect: Detector, view: RunView) -> list[Finding]:
    """What a detector says. One that trips over odd data says that, and costs none of the others' words."""
    try:
        return detect(view)
    except Exception as error:
        name = detect.__name__.removeprefix("detect_").replace("_", "-")
        told = f"the detector {name} could not look: {type(error).__name__}: {error}"
        return [insufficient(view, told, "tell the makers of rankscope, with the run if you can", detector=name)]


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """By severity; among equals what says whose fault it is before what does not, then by the time they cost."""
    return sorted(findings, key=lambda one: (_URGENCY[one.severity], not _tells_why(one), -one.seconds_lost))


def _tells_why(finding: Finding) -> bool:
    return not _is_symptom(finding) and finding.kind is not Kind.INSUFFICIENT_EVIDENCE


def without_symptoms(findings: list[Finding]) -> list[Finding]:
    """Findings without the symptoms that another one explains: one that costs much of it, over much of its steps.

    Symptoms are a decline, late launches and slow links that nobody in particular is to blame for, slowness of a rank
    whose GPU is held down or whose host says why, late launches of a rank that computes longer than its peers, and
    slight slowness beside a sick network, or on a host whose cores are crowded: there processor time is
    not what it was. A host that merely looks unlike others steps back behind whoever is accused.
    """
    return [one for one in findings if not any(_explains(cause, one) for cause in findings if _is_cause(cause, one))]


def _is_symptom(finding: Finding) -> bool:
    vague = finding.kind in (Kind.LATE_LAUNCH, Kind.SLOW_LINK) and not finding.ranks
    return vague or finding.kind is Kind.MFU_DECLINE


def _is_cause(cause: Finding, symptom: Finding) -> bool:
    """Another symptom may explain a decline, a decline nothing; steps that are lost to a sick loss are no slower."""
    if cause.kind in (Kind.LOSS_ANOMALY, Kind.INSUFFICIENT_EVIDENCE):
        return False
    if symptom.kind is Kind.MFU_DECLINE:
        return cause.kind is not Kind.MFU_DECLINE
    if symptom.kind is Kind.UNLIKE_HOST:
        return cause.kind is not Kind.UNLIKE_HOST and bool(cause.hosts)
    if symptom.kind is Kind.COMPUTE_STRAGGLER and (cause.kind is Kind.GPU_THROTTLED or _has_witness(cause)):
        return 2 * len({*cause.ranks} & {*symptom.ranks}) >= len(symptom.ranks)
    if _is_late_by_work(symptom, cause):
        return True
    if symptom.kind is Kind.COMPUTE_STRAGGLER and symptom.severity is Severity.INFO:
        near = cause.kind is Kind.HOST_CONTENTION and bool({*cause.hosts} & {*symptom.hosts})
        return near or (cause.kind in _NETWORK and cause.severity is not Severity.INFO)
    return _is_symptom(symptom) and not _is_symptom(cause)


def _is_late_by_work(late: Finding, slow: Finding) -> bool:
    """Whether one finding puts down to launches what the other puts down to work of the same ranks. Lateness by
    collections of garbage is neither: work leaves them out."""
    if late.kind is not Kind.LATE_LAUNCH or slow.kind is not Kind.COMPUTE_STRAGGLER:
        return False
    by_gc = 2 * _number(late, "late_launches_with_gc") >= max(1.0, _number(late, "late_launches"))
    accused = {one.rank for one in late.suspects if one.role is not Role.VICTIM}
    return bool(accused & {*slow.ranks}) and not by_gc


def _number(finding: Finding, name: str) -> float:
    value = finding.evidence.get(name, 0)
    return float(value) if isinstance(value, (int, float)) else 0.0


def _has_witness(finding: Finding) -> bool:
    """Whether a host itself says what keeps its ranks from computing: paging takes processor time, too."""
    return finding.kind is Kind.HOST_CONTENTION and "cause" in finding.evidence


def _explains(cause: Finding, symptom: Finding) -> bool:
    first = max(cause.window.first_step, symptom.window.first_step)
    last = min(cause.window.last_step, symptom.window.last_step)
    common = max(0, last - first + 1) / (symptom.window.last_step - symptom.window.first_step + 1)
    least = MUCH_OF_LATENESS if cause.kind is Kind.LATE_LAUNCH or _is_late_by_work(symptom, cause) else MUCH
    return common >= MUCH and cause.seconds_lost >= least * symptom.seconds_lost


def diagnose_run(reader: Reader, run_id: str, attempt: int, window: StepWindow | None = None) -> Report:
    """All findings about a stored attempt: its stall, if there is one, then what slowed it; over its newest 200 steps
    where no window is given.

    Raises:
        UnknownRunError: the store holds no such attempt.
        UnreachableError: nobody answers.
    """
    report = diagnose_view(load_view(reader, run_id, attempt, window))
    losses, heard = load_losses(reader, run_id, attempt), heard_of(reader, run_id, attempt)
    return stall_first(replace(report, losses=losses, heard=heard), reader)


def stall_first(report: Report, reader: Reader) -> Report:
    """With the stall of the attempt, if there is one, in front of what slowed it. Evidence that cannot be read must not
    hide the other findings: ``diagnose hang`` reports it."""
    with suppress(UnreadableError):
        return with_stall(report, stored_verdict(reader, report.run_id, report.attempt))
    return report


def with_stall(report: Report, verdict: HangVerdict | None) -> Report:
    """``report`` with the finding of ``verdict``, if there is one, as its first."""
    stall = None if verdict is None else hang_finding(verdict)
    return report if stall is None else replace(report, findings=(stall, *_without_twins(stall, report.findings)))


def _without_twins(stall: Finding, findings: tuple[Finding, ...]) -> list[Finding]:
    """What a detector says of the very card that the stall is put down to, the stall says better."""
    device = stall.evidence.get("device")
    return [
        one
        for one in findings
        if one.kind is not Kind.NIC_FLAP or (one.evidence.get("device"), one.hosts) != (device, stall.hosts)
    ]
